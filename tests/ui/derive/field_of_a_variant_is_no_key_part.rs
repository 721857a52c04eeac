use idem::KeyPart;

#[derive(KeyPart)]
enum Id {
    Maybe(Option<u64>),
}

fn main() {}
