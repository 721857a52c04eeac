use idem::KeyPart;

#[derive(KeyPart)]
enum Status {
    #[key_part(skip = true)]
    New,
}

fn main() {}
