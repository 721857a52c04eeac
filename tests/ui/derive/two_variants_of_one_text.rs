use idem::KeyPart;

#[derive(KeyPart)]
enum Status {
    New,
    #[key_part(rename = "New")]
    Fresh,
}

fn main() {}
