use idem::KeyPart;

#[derive(KeyPart)]
struct Id {
    tenant: u64,
    order: u64,
}

fn main() {}
