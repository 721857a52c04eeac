use idem::KeyPart;

#[derive(KeyPart)]
enum Id {}

fn main() {}
