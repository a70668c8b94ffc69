//! The devices as a program finds them through the door. The program is this one: each test runs it
//! again, with the library preloaded, and it uses the devices by ordinary system calls.

mod channels;
mod inside;
mod shared;
mod violations;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

/// The environment variable that selects one of the [cases](inside::CASES).
pub(crate) const CASE: &str = "MLX5_SIM_TEST_CASE";

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        return inside::run(&name);
    }
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = inside::CASES
        .iter()
        .map(|case| Trial::test(case.name, || passes(case.name, case.settings)))
        .collect();
    trials.push(Trial::test("what_cannot_be_understood_ends_the_program", misunderstood));
    trials.push(Trial::test("a_machine_that_nobody_serves_ends_the_program", nobody_serves));
    trials.push(Trial::test("an_unknown_call_is_said_once", unknown_call));
    trials.push(Trial::test("every_call_is_said_if_that_is_wanted", traced));
    trials.push(Trial::test("what_is_refused_is_said_by_name", refused));
    trials.push(Trial::test("nothing_stays_on_the_disk", nothing_left));
    trials.extend(shared::trials());
    trials.extend(violations::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The library is beside the test, or one directory up.
fn library() -> PathBuf {
    let this = std::env::current_exe().expect("the path of this program");
    this.ancestors()
        .skip(1)
        .take(2)
        .map(|above| above.join("libmlx5_sim_preload.so"))
        .find(|place| place.exists())
        .expect("cargo builds the library with its tests")
}

fn command(case: &str, settings: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.env("LD_PRELOAD", library()).env("MLX5_SIM", settings).env(CASE, case);
    command
}

fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    ended(command.spawn().expect("this program runs"))
}

/// The longest that a program may take; far longer than it does.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits for a program, which is killed if the limit is over before it ends.
fn ended(child: Child) -> Output {
    let (process, (end, waits)) = (child.id(), channel());
    thread::spawn(move || end.send(child.wait_with_output().expect("a child to wait for")));
    waits.recv_timeout(LIMIT).unwrap_or_else(|_| {
        // SAFETY: the call takes numbers.
        unsafe { libc::kill(process as i32, libc::SIGKILL) };
        panic!("process {process} hangs")
    })
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn check(holds: bool, output: &Output) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(format!("{}\n{}", output.status, said(output)).into()) }
}

fn passes(case: &str, settings: &str) -> Result<(), Failed> {
    let output = output(&mut command(case, settings));
    check(output.status.success(), &output)
}

fn misunderstood() -> Result<(), Failed> {
    let output = output(&mut command("devices_are_found", "devices=2,model=connectx3"));
    check(
        output.status.code() == Some(2) && said(&output).contains("cx5, cx6, cx6dx, cx7"),
        &output,
    )
}

fn nobody_serves() -> Result<(), Failed> {
    let socket = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("nobody-serves");
    let settings = format!("wire={}", socket.display());
    let output = output(&mut command("devices_are_found", &settings));
    let said = said(&output);
    let what = said.contains(&format!("no simulated machine is served at {} (", socket.display()));
    let how = format!("`cargo run -p mlx5-sim-wire -- {} --stay`", socket.display());
    check(output.status.code() == Some(2) && what && said.contains(&how), &output)
}

fn unknown_call() -> Result<(), Failed> {
    let output = output(&mut command("a_call_that_is_none_of_the_device_s_is_refused", ""));
    let lines = said(&output).lines().filter(|line| line.starts_with("mlx5-sim: ")).count();
    check(output.status.success() && lines == 1, &output)
}

fn traced() -> Result<(), Failed> {
    let output = output(&mut command("messages_go_from_one_queue_pair_to_another", "trace"));
    let said = said(&output);
    let heard = [
        ": mmap of 4096 bytes, ",
        ": UVERBS_METHOD_QP_CREATE of type Rc\n",
        ": IB_USER_VERBS_CMD_REG_MR\n",
    ];
    check(output.status.success() && heard.iter().all(|call| said.contains(call)), &output)
}

/// Refused types of queue pairs are logged only if every call is: programs try which types exist.
fn refused() -> Result<(), Failed> {
    const UNKNOWN: &str = "uverbs0: MLX5_IB_METHOD_VAR_OBJ_ALLOC (attributes: \
                           MLX5_IB_ATTR_VAR_OBJ_ALLOC_HANDLE, \
                           MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_OFFSET, \
                           MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_LENGTH, \
                           MLX5_IB_ATTR_VAR_OBJ_ALLOC_PAGE_ID): EPROTONOSUPPORT";
    const TYPES: [&str; 2] = [
        "uverbs0: UVERBS_METHOD_QP_CREATE of type RawPacket (attributes: ",
        "uverbs0: UVERBS_METHOD_QP_CREATE of type Driver (attributes: ",
    ];
    let run = |settings| {
        output(&mut command("calls_that_the_device_does_not_know_are_refused", settings))
    };
    let quiet = run("");
    let told = said(&quiet).lines().filter(|line| line.starts_with("mlx5-sim: ")).count();
    check(quiet.status.success() && told == 1 && said(&quiet).contains(UNKNOWN), &quiet)?;
    let traced = run("trace");
    let heard = |line: &&str| said(&traced).contains(*line);
    check(traced.status.success() && TYPES.iter().all(heard), &traced)?;
    let refused = said(&traced).lines().filter(|line| line.contains("): EOPNOTSUPP: ")).count();
    check(refused == 2 && said(&traced).contains(UNKNOWN), &traced)
}

fn entries(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).expect("the directory").flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn nothing_left() -> Result<(), Failed> {
    let above = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("nothing_left");
    // It may be there from a run that was ended.
    let _ = fs::remove_dir_all(&above);
    fs::create_dir_all(&above).expect("a directory");
    let run = |case| output(command(case, "").env("TMPDIR", &above));
    let killed = run("a_program_may_die_at_any_time");
    check(!killed.status.success(), &killed)?;
    // The directory and its lock.
    check(entries(&above).len() == 2, &killed)?;
    let ended = run("devices_are_found");
    check(ended.status.success(), &ended)?;
    check(entries(&above).is_empty(), &ended)
}
