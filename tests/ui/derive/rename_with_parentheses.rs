use idem::KeyPart;

#[derive(KeyPart)]
enum Status {
    #[key_part(rename = "new(1)")]
    New,
}

fn main() {}
