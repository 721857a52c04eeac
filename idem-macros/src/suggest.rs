//! "Did you mean".

/// The candidate that `name` was most likely meant to be.
pub(crate) fn closest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Edits from `a` to `b`; two neighbours that changed places are one edit.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let mut edits = (last[j] + usize::from(x != y))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                let swapped: &Vec<usize> = &before;
                edits = edits.min(swapped[j - 1] + 1);
            }
            row.push(edits);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// What follows a name that is not there.
pub(crate) fn did_you_mean(name: &str) -> String {
    format!(" (did you mean `{name}`?)")
}

/// The names that there are, as `rustc` lists them.
pub(crate) fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match &*quoted {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first, second] => format!("{first} or {second}"),
        [init @ .., last] => format!("one of {}, or {last}", init.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{closest, one_of};

    #[test]
    fn near_misses_are_found_and_far_ones_are_not() {
        let names = ["key", "store", "ttl", "scope", "fingerprint"];
        assert_eq!(closest("stroe", names), Some("store"));
        assert_eq!(closest("fingerprnt", names), Some("fingerprint"));
        assert_eq!(closest("tll", names), Some("ttl"));
        assert_eq!(closest("banana", names), None);
    }

    #[test]
    fn lists_read_as_those_of_rustc() {
        assert_eq!(one_of([]), "nothing");
        assert_eq!(one_of(["a"]), "`a`");
        assert_eq!(one_of(["a", "b"]), "`a` or `b`");
        assert_eq!(one_of(["a", "b", "c"]), "one of `a`, `b`, or `c`");
    }
}
