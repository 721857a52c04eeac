use idem::KeyPart;

#[derive(KeyPart)]
struct Id;

fn main() {}
