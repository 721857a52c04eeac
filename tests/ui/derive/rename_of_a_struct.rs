use idem::KeyPart;

#[derive(KeyPart)]
#[key_part(rename = "id")]
struct Id(u64);

fn main() {}
