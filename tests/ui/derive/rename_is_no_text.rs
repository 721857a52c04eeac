use idem::KeyPart;

#[derive(KeyPart)]
enum Status {
    #[key_part(rename = 1)]
    New,
}

fn main() {}
