//! Several threads at the same time.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::medians::median;

/// What so many threads did at the same time.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Threads {
    case: String,
    who: String,
    mode: String,
    threads: u32,
    /// Nanoseconds of a request, of the thread that took longest.
    nanoseconds: f64,
    /// Millions of requests in a second, of all threads together.
    millions: f64,
}

/// What the benchmark says of threads.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Crowd {
    /// How many cores there are.
    cores: u32,
    rows: Vec<Threads>,
}

impl Crowd {
    /// Reads what processes of the benchmark wrote: of each number, the median. Nothing if it cannot be read.
    pub(super) fn read(told: &[String]) -> Option<Self> {
        let mut crowds =
            told.iter().map(|told| Self::of_process(told)).collect::<Option<Vec<_>>>()?;
        let mut crowd = crowds.pop()?;
        crowds.push(crowd.clone());
        if crowds.iter().any(|other| other.rows.len() != crowd.rows.len()) {
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

    fn of_process(text: &str) -> Option<Self> {
        let mut crowd = Self::default();
        for line in text.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
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
        Some(crowd).filter(|crowd| crowd.cores != 0 && !crowd.rows.is_empty())
    }

    pub(super) fn json(&self) -> impl Iterator<Item = Value> + '_ {
        self.rows.iter().map(|row| {
            json!({
                "case": format!("threads_{}", row.case),
                "who": row.who,
                "mode": row.mode,
                "threads": row.threads,
                "cores": self.cores,
                "ns": row.nanoseconds,
                "millions": row.millions,
            })
        })
    }

    /// What one thread of the same kind did in the same case.
    fn alone(&self, of: &Threads) -> Option<&Threads> {
        let is_it = |row: &&Threads| {
            row.threads == 1 && (&row.case, &row.who, &row.mode) == (&of.case, &of.who, &of.mode)
        };
        self.rows.iter().find(is_it)
    }

    pub(super) fn markdown(&self, text: &mut String) {
        if self.rows.is_empty() {
            return;
        }
        let _ = write!(
            text,
            "\n## Threads\n\n\
             Threads that post or poll at the same time, each pinned to a core of its own, of which this \
             machine has {}. *own*: each has a queue pair and a completion queue. *one*: all use one queue \
             pair and one completion queue, which are locked. *apart*: one posts while another polls. Rate: \
             millions of requests in a second, of all threads together; times: that of one thread.\n\n\
             | case | who | threads | ns of a request | rate | times |\n|---|---|--:|--:|--:|--:|\n",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_compared_with_that_of_one_thread() {
        let text = "cores\t2\nthreads\town_post\tmlx5\tsingle\t1\t10.00\t100.00\n\
                    threads\town_post\tmlx5\tsingle\t2\t10.10\t195.00\n";
        let slow = text.replace("10.10\t195.00", "121.60\t16.00");
        let crowd = Crowd::read(&[text.into(), slow, text.into()]).expect("readable");
        let mut page = String::new();
        crowd.markdown(&mut page);
        assert!(page.contains("of which this machine has 2."), "{page}");
        assert!(page.contains("| `own_post` | mlx5 | 1 | 10.0 | 100.0 |  |\n"), "{page}");
        assert!(page.contains("| `own_post` | mlx5 | 2 | 10.1 | 195.0 | 1.95 |\n"), "{page}");
        assert_eq!(crowd.json().count(), 2);
    }

    #[test]
    fn what_says_nothing_of_cores_or_threads_is_not_readable() {
        let row = "threads\town_post\tmlx5\tsingle\t1\t10.00\t100.00\n";
        assert_eq!(Crowd::read(&[row.into()]), None);
        assert_eq!(Crowd::read(&["cores\t2\n".into()]), None);
        assert_eq!(Crowd::read(&[]), None);
        let whole = format!("cores\t2\n{row}");
        assert!(Crowd::read(std::slice::from_ref(&whole)).is_some());
        assert_eq!(Crowd::read(&[whole.clone() + row, whole]), None);
    }
}
