//! Results of several threads that run at the same time.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::medians::median;
use crate::failure::Failure;

/// Results of a number of threads in one case.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Threads {
    case: String,
    who: String,
    mode: String,
    threads: u32,
    /// Nanoseconds of a request, in the thread that took longest.
    nanoseconds: f64,
    /// Millions of requests per second, of all threads together.
    millions: f64,
}

/// Output of the benchmark for threads.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Crowd {
    /// Name of the processor, and its number of cores.
    machine: String,
    cores: u32,
    rows: Vec<Threads>,
}

impl Crowd {
    /// Parses the output of several processes and takes the median of each number. Returns `None`
    /// if it cannot be parsed.
    pub(super) fn read(outputs: &[String]) -> Option<Self> {
        let mut crowds =
            outputs.iter().map(|output| Self::of_process(output)).collect::<Option<Vec<_>>>()?;
        let mut crowd = crowds.pop()?;
        crowds.push(crowd.clone());
        if crowds.iter().any(|other| !other.is_of_same(&crowd)) {
            return None;
        }
        for (place, row) in crowd.rows.iter_mut().enumerate() {
            let all = |of: fn(&Threads) -> f64| {
                median(crowds.iter().map(|crowd| of(&crowd.rows[place])).collect())
            };
            row.nanoseconds = all(|row| row.nanoseconds);
            row.millions = all(|row| row.millions);
        }
        Some(crowd)
    }

    /// Whether both have the same machine and the same cases.
    fn is_of_same(&self, other: &Self) -> bool {
        let cases = |crowd: &Self| -> Vec<_> {
            let case =
                |row: &Threads| (row.case.clone(), row.who.clone(), row.mode.clone(), row.threads);
            crowd.rows.iter().map(case).collect()
        };
        (&self.machine, self.cores, cases(self)) == (&other.machine, other.cores, cases(other))
    }

    /// Reads the output of processes on another machine, a file for each.
    pub(super) fn of_files(paths: &[PathBuf]) -> Result<Self, Failure> {
        let outputs = paths.iter().map(|path| {
            fs::read_to_string(path).map_err(|error| Failure::File { path: path.clone(), error })
        });
        Self::read(&outputs.collect::<Result<Vec<_>, _>>()?).ok_or_else(|| Failure::Output {
            program: "mlx5-bench beside LIBRARIES threads".into(),
            what: "nothing of threads, or not the same cases on one machine by each process".into(),
        })
    }

    /// Earlier results of another machine in the file at `path`; empty if there are none.
    pub(super) fn measured_elsewhere(path: &Path) -> Result<Self, Failure> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            read => read.map_err(|error| Failure::File { path: path.to_owned(), error })?,
        };
        Self::of_json(&text).ok_or_else(|| Failure::Output {
            program: path.display().to_string(),
            what: "no list of rows".into(),
        })
    }

    /// Finds the rows of [`Crowd::json`] of another machine among all rows. Returns `None` if the
    /// text is no array of rows.
    fn of_json(text: &str) -> Option<Self> {
        let rows: Vec<Value> = serde_json::from_str(text).ok()?;
        let mut crowd = Self::default();
        for row in rows {
            let read = || {
                let machine = row["machine"].as_str()?.to_owned();
                let number = |name: &str| u32::try_from(row[name].as_u64()?).ok();
                let threads = Threads {
                    case: row["case"].as_str()?.strip_prefix(CASE)?.to_owned(),
                    who: row["who"].as_str()?.to_owned(),
                    mode: row["mode"].as_str()?.to_owned(),
                    threads: number("threads")?,
                    nanoseconds: row["ns"].as_f64()?,
                    millions: row["millions"].as_f64()?,
                };
                Some((machine, number("cores")?, threads))
            };
            if let Some((machine, cores, row)) = read() {
                (crowd.machine, crowd.cores) = (machine, cores);
                crowd.rows.push(row);
            }
        }
        Some(crowd)
    }

    fn of_process(text: &str) -> Option<Self> {
        let mut crowd = Self::default();
        for line in text.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["machine", machine] => crowd.machine = machine.to_owned(),
                ["cores", cores] => crowd.cores = cores.parse().ok()?,
                ["threads", case, who, mode, threads, nanoseconds, millions] => {
                    crowd.rows.push(Threads {
                        case: case.to_owned(),
                        who: who.to_owned(),
                        mode: mode.to_owned(),
                        threads: threads.parse().ok()?,
                        nanoseconds: nanoseconds.parse().ok()?,
                        millions: millions.parse().ok()?,
                    });
                }
                _ => {}
            }
        }
        let named = !crowd.machine.is_empty() && crowd.cores != 0;
        Some(crowd).filter(|crowd| named && !crowd.rows.is_empty())
    }

    /// Rows for the file; `elsewhere` adds the name of the machine.
    pub(super) fn json(&self, elsewhere: bool) -> impl Iterator<Item = Value> + '_ {
        self.rows.iter().map(move |row| {
            let mut row = json!({
                "case": format!("{CASE}{}", row.case),
                "who": row.who,
                "mode": row.mode,
                "threads": row.threads,
                "cores": self.cores,
                "ns": row.nanoseconds,
                "millions": row.millions,
            });
            if elsewhere {
                row["machine"] = json!(self.machine);
            }
            row
        })
    }

    /// The row of one thread in the same case.
    fn alone(&self, of: &Threads) -> Option<&Threads> {
        let is_it = |row: &&Threads| {
            row.threads == 1 && (&row.case, &row.who, &row.mode) == (&of.case, &of.who, &of.mode)
        };
        self.rows.iter().find(is_it)
    }

    /// The section on threads: this machine, and another one if it has results.
    pub(super) fn markdown(&self, elsewhere: &Self, text: &mut String) {
        if self.rows.is_empty() {
            return;
        }
        text.push_str(INTRODUCTION);
        for (crowd, machine) in [(self, "this machine"), (elsewhere, elsewhere.machine.as_str())] {
            if !crowd.rows.is_empty() {
                crowd.table(machine, text);
            }
        }
    }

    fn table(&self, machine: &str, text: &mut String) {
        let _ = write!(
            text,
            "\nOn {machine}, with {} cores:\n\n\
             | case | implementation | threads | ns of a request | rate | times |\n|---|---|--:|--:|--:|--:|\n",
            self.cores
        );
        for row in &self.rows {
            let times = self.alone(row).filter(|_| row.threads > 1);
            let times =
                times.map_or_else(String::new, |one| format!("{:.2}", row.millions / one.millions));
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {:.1} | {:.1} | {times} |",
                row.case, row.who, row.threads, row.nanoseconds, row.millions
            );
        }
    }
}

/// Prefix of these cases' names in the file.
const CASE: &str = "threads_";

const INTRODUCTION: &str = "
## Threads

Threads that post or poll at the same time, each pinned to a core of its own. *own*: each has a queue
pair and a completion queue. *one*: all use one queue pair and one completion queue, which are locked.
*apart*: one posts while another polls. Rate: millions of requests in a second, of all threads together;
times: that of one thread.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_compared_with_that_of_one_thread() {
        let text = "machine\tA CPU\ncores\t2\nthreads\town_post\tmlx5\tsingle\t1\t10.00\t100.00\n\
                    threads\town_post\tmlx5\tsingle\t2\t10.10\t195.00\n";
        let slow = text.replace("10.10\t195.00", "121.60\t16.00");
        let crowd = Crowd::read(&[text.into(), slow, text.into()]).expect("readable");
        let mut page = String::new();
        crowd.markdown(&Crowd::default(), &mut page);
        assert!(page.contains("\nOn this machine, with 2 cores:\n"), "{page}");
        assert!(page.contains("| `own_post` | mlx5 | 1 | 10.0 | 100.0 |  |\n"), "{page}");
        assert!(page.contains("| `own_post` | mlx5 | 2 | 10.1 | 195.0 | 1.95 |\n"), "{page}");
        assert_eq!(crowd.json(false).count(), 2);
    }

    #[test]
    fn rows_of_another_machine_are_kept() {
        let text = "machine\tA CPU\ncores\t16\nthreads\tone_post\tmlx5\tshared\t16\t80.5\t12.5\n";
        let elsewhere = Crowd::read(&[text.into()]).expect("readable");
        let here = Crowd::read(&[text.replace("16", "2")]).expect("readable");
        let rows: Vec<Value> = here.json(false).chain(elsewhere.json(true)).collect();
        assert_eq!(Crowd::of_json(&Value::from(rows).to_string()), Some(elsewhere.clone()));
        assert_eq!(Crowd::of_json("[{\"case\""), None, "cut off");
        let mut page = String::new();
        here.markdown(&elsewhere, &mut page);
        let at = page.find("\nOn A CPU, with 16 cores:\n").expect("the other machine");
        assert!(page[at..].contains("| `one_post` | mlx5 | 16 | 80.5 | 12.5 |  |\n"), "{page}");
    }

    #[test]
    fn rows_without_cores_or_threads_are_unreadable() {
        let row = "threads\town_post\tmlx5\tsingle\t1\t10.00\t100.00\n";
        assert_eq!(Crowd::read(&[row.into()]), None);
        assert_eq!(Crowd::read(&["machine\tA CPU\ncores\t2\n".into()]), None);
        assert_eq!(Crowd::read(&[format!("cores\t2\n{row}")]), None);
        assert_eq!(Crowd::read(&[]), None);
        let whole = format!("machine\tA CPU\ncores\t2\n{row}");
        assert!(Crowd::read(std::slice::from_ref(&whole)).is_some());
        assert_eq!(Crowd::read(&[whole.clone() + row, whole.clone()]), None);
        for (one, another) in
            [("A CPU", "B CPU"), ("s\t2", "s\t4"), ("own", "one"), ("\t1\t", "\t2\t")]
        {
            assert_eq!(
                Crowd::read(&[whole.replace(one, another), whole.clone()]),
                None,
                "{another}"
            );
        }
    }
}
