use idem::KeyPart;

#[derive(KeyPart)]
#[key_part(skip = true)]
struct Id(u64);

fn main() {}
