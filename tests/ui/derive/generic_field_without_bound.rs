use idem::KeyPart;

#[derive(KeyPart)]
struct Id<T>(T);

fn is_key_part<K: KeyPart>(_: K) {}

fn main() {
    is_key_part(Id(1.5));
}
