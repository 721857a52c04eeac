use idem::KeyPart;

#[derive(KeyPart)]
enum Id {
    Order(u64, u64),
}

fn main() {}
