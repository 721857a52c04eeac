use idem::KeyPart;

#[derive(KeyPart)]
#[key_part(crate = idem)]
struct Id(u64);

fn main() {}
