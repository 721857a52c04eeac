use std::any::type_name;
use std::sync::OnceLock;

/// The longest fixed operation name, in characters.
pub const MAX_SCOPE_CHARS: usize = 200;

/// The operation's name: records of two operations never meet.
///
/// A *fixed* scope (`scope = "order.create"`) is stable under renames and moves. A *derived* one is
/// the path of the function, with the type and trait it belongs to: renaming or moving the function
/// makes its old records unreachable.
#[derive(Debug)]
pub struct Scope {
    fixed: Option<&'static str>,
    /// The function that the scope is derived for, if it is another one than the enclosing.
    beside: Option<&'static str>,
    derived: OnceLock<String>,
}

impl Scope {
    /// The name given by the user; `#[idempotent]` has checked it.
    #[must_use]
    pub const fn fixed(name: &'static str) -> Self {
        Self {
            fixed: Some(name),
            beside: None,
            derived: OnceLock::new(),
        }
    }

    /// The path of the annotated function.
    #[must_use]
    pub const fn derived() -> Self {
        Self {
            fixed: None,
            beside: None,
            derived: OnceLock::new(),
        }
    }

    /// The path of the function `name`, which stands in the same module or impl block as the
    /// enclosing one.
    #[must_use]
    pub const fn beside(name: &'static str) -> Self {
        Self {
            fixed: None,
            beside: Some(name),
            derived: OnceLock::new(),
        }
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// The name; `Here` is the type of an item inside the annotated function.
    pub(crate) fn resolve<Here>(&self) -> &str {
        match self.fixed {
            Some(name) => name,
            None => self.derived.get_or_init(|| {
                let path = enclosing_path(type_name::<Here>());
                match self.beside {
                    Some(name) => sibling(&path, name),
                    None => path,
                }
            }),
        }
    }
}

/// Cuts the item's own name off and drops the closures that an `async fn` adds, so that the path
/// does not depend on how the function was desugared.
fn enclosing_path(item: &str) -> String {
    let parent = item.rsplit_once("::").map_or(item, |(parent, _)| parent);
    parent.replace("::{{closure}}", "")
}

/// The path of the function `name` beside that of `path`.
fn sibling(path: &str, name: &str) -> String {
    match path.rsplit_once("::") {
        Some((parent, _)) => format!("{parent}::{name}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{enclosing_path, sibling};

    #[test]
    fn a_sibling_differs_in_its_name_alone() {
        assert_eq!(sibling("shop::pay_call", "pay"), "shop::pay");
        assert_eq!(
            sibling("shop::<impl shop::A<T>>::pay_call", "pay"),
            "shop::<impl shop::A<T>>::pay"
        );
    }

    #[test]
    fn closures_of_async_functions_are_no_part_of_the_identity() {
        assert_eq!(
            enclosing_path("shop::pay::{{closure}}::__idem_here"),
            "shop::pay"
        );
        assert_eq!(
            enclosing_path("<shop::A as shop::Pay>::pay::{{closure}}::{{closure}}::__idem_here"),
            "<shop::A as shop::Pay>::pay"
        );
    }
}
