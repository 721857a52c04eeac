//! `#[derive(KeyPart)]`.

use idem::KeyPart;
use idem::key::KeyBuilder;

fn text(part: &impl KeyPart) -> String {
    let mut key = KeyBuilder::new(":");
    key.part(part);
    key.finish().unwrap().as_str().to_owned()
}

#[derive(KeyPart)]
struct OrderNo(u64);

#[derive(KeyPart)]
struct Merchant {
    name: String,
}

#[derive(KeyPart)]
struct Borrowed<'a>(&'a str);

#[derive(KeyPart)]
struct Generic<T>(T);

#[derive(KeyPart)]
struct Bounded<T>
where
    T: Clone,
{
    inner: T,
}

#[derive(KeyPart)]
struct Bytes<const N: usize>([u8; N]);

#[derive(KeyPart)]
enum Status {
    New,
    #[key_part(rename = "paid-in-full")]
    Paid,
    Returned(),
    Other {},
    r#As,
    Refunded(u64),
    Split {
        into: OrderNo,
    },
    #[cfg(any())]
    Absent(std::time::Instant),
}

#[derive(KeyPart)]
#[key_part(crate = ::idem)]
struct Elsewhere(bool);

#[test]
fn newtypes_are_their_field() {
    assert_eq!(text(&OrderNo(7)), "7");
    assert_eq!(text(&Merchant { name: "a:b".into() }), "a%3Ab");
    assert_eq!(text(&Borrowed("x")), "x");
    assert_eq!(text(&Generic(OrderNo(1))), "1");
    assert_eq!(text(&Bounded { inner: "y" }), "y");
    assert_eq!(text(&Bytes([1, 255])), "01ff");
    assert_eq!(text(&Elsewhere(true)), "true");
}

#[test]
fn variants_are_their_name_with_their_field_in_parentheses() {
    assert_eq!(text(&Status::New), "New");
    assert_eq!(text(&Status::Paid), "paid-in-full");
    assert_eq!(text(&Status::Returned()), "Returned");
    assert_eq!(text(&Status::Other {}), "Other");
    assert_eq!(text(&Status::As), "As");
    assert_eq!(text(&Status::Refunded(5)), "Refunded(5)");
    assert_eq!(text(&Status::Split { into: OrderNo(2) }), "Split(2)");
}
