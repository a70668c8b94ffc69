//! `mlx5 completions` and `mlx5 man`: what a shell and man(1) know of the command.

use crate::failure::Failure;
use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// `--help`.
pub(crate) const COMPLETIONS: &str = "\
Writes a completion script for a shell to stdout.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples, each with the folder that the shell looks into:
  mkdir -p ~/.local/share/bash-completion/completions
  mlx5 completions bash > ~/.local/share/bash-completion/completions/mlx5

  mkdir -p ~/.zfunc                    ~/.zshrc: fpath+=~/.zfunc; autoload -U compinit; compinit
  mlx5 completions zsh > ~/.zfunc/_mlx5

  mkdir -p ~/.config/fish/completions
  mlx5 completions fish > ~/.config/fish/completions/mlx5.fish

A shell that runs already knows them when it is started again. Bash needs the package
bash-completion.";

/// `--help`.
pub(crate) const MAN: &str = "\
Writes the man pages, mlx5.1 and one of each command, into a folder.";

const MAN_EXAMPLES: &str = "\
Examples:
  mlx5 man ~/.cargo/share/man/man1
  man mlx5-perf

man(1) looks beside each folder of PATH: for ~/.cargo/bin, where `cargo install` puts the
command, into ~/.cargo/share/man. `manpath` shows where else.";

/// Options of `mlx5 completions`.
#[derive(clap::Args, Debug)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Options of `mlx5 man`.
#[derive(clap::Args, Debug)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// The folder; made if it is not there
    #[arg(value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

pub(crate) fn completions(
    args: &CompletionsArgs,
    mut command: Command,
    out: &mut impl Write,
) -> Result<(), Failure> {
    // Shells complete the names of files where nothing else is said.
    let plain = |arg: Arg| match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    };
    for command in command.get_subcommands_mut() {
        *command = std::mem::take(command).mut_args(plain);
    }
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "mlx5", &mut script);
    Ok(out.write_all(&script)?)
}

pub(crate) fn man(
    args: &ManArgs,
    mut command: Command,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let folder = &args.folder;
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    command.build();
    let mut page = |name: &str, command: Command| -> Result<(), Failure> {
        let path = folder.join(format!("{name}.1"));
        let mut text = Vec::new();
        clap_mangen::Man::new(command).render(&mut text)?;
        fs::write(&path, text).map_err(|error| failed(&path, &error))?;
        Ok(writeln!(out, "{}", path.display())?)
    };
    let commands: Vec<Command> =
        command.get_subcommands().filter(|command| command.get_name() != "help").cloned().collect();
    page("mlx5", command)?;
    for command in commands {
        page(&format!("mlx5-{}", command.get_name()), command)?;
    }
    Ok(())
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}
