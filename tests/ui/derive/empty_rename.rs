use idem::KeyPart;

#[derive(KeyPart)]
enum Status {
    #[key_part(rename = "")]
    New,
}

fn main() {}
