use idem::KeyPart;

#[derive(KeyPart)]
enum Status {
    #[key_part(rename = "a", rename = "b")]
    New,
}

fn main() {}
