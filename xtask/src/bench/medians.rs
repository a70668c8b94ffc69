//! Medians over the output of several processes.

/// The median of each number over all processes. A line of `kind` has a name and ends with the
/// number. Returns `None` if there is no such line, or if a number is missing or cannot be parsed.
pub(super) fn medians(outputs: &[String], kind: &str) -> Option<Vec<(Vec<String>, f64)>> {
    let mut found: Vec<(Vec<&str>, Vec<f64>)> = Vec::new();
    for line in outputs.iter().flat_map(|output| output.lines()) {
        let mut name: Vec<&str> = line.split('\t').collect();
        if name.remove(0) != kind {
            continue;
        }
        let value = name.pop()?.parse().ok()?;
        match found.iter_mut().find(|other| other.0 == name) {
            Some((_, values)) => values.push(value),
            None => found.push((name, vec![value])),
        }
    }
    if found.is_empty() || found.iter().any(|(_, values)| values.len() != outputs.len()) {
        return None;
    }
    let owned = |name: Vec<&str>| name.into_iter().map(str::to_owned).collect();
    Some(found.into_iter().map(|(name, values)| (owned(name), median(values))).collect())
}

/// The median.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn a_time_is_the_median_of_what_the_processes_say() {
        let outputs = outputs(&[
            "time\tpoll1\tmlx5\tsingle\t5.0\ntime\tpost\tmlx5\tsingle\t8.0\npair\ta\t1.0\n",
            "time\tpoll1\tmlx5\tsingle\t50.0\ntime\tpost\tmlx5\tsingle\t9.0\npair\ta\t1.0\n",
            "time\tpoll1\tmlx5\tsingle\t6.0\ntime\tpost\tmlx5\tsingle\t7.0\npair\ta\t1.0\n",
        ]);
        let name = |case: &str| vec![case.to_owned(), "mlx5".to_owned(), "single".to_owned()];
        assert_eq!(
            medians(&outputs, "time"),
            Some(vec![(name("poll1"), 6.0), (name("post"), 8.0)])
        );
        assert_eq!(medians(&outputs, "pair"), Some(vec![(vec!["a".to_owned()], 1.0)]));
    }

    #[test]
    fn a_time_that_a_process_does_not_say_is_missed() {
        let missing = outputs(&["time\tpoll1\t5.0\n", "time\tpost\t5.0\n"]);
        assert_eq!(medians(&missing, "time"), None);
        assert_eq!(medians(&outputs(&["time\tpoll1\tnone\n"]), "time"), None);
        assert_eq!(medians(&outputs(&["pair\tpoll1\t5.0\n"]), "time"), None);
    }
}
