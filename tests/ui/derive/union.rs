use idem::KeyPart;

#[derive(KeyPart)]
union Id {
    a: u64,
    b: i64,
}

fn main() {}
