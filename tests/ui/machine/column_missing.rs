use idem::StateMachine;

#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    #[state(initial, to(Paid))]
    Pending,
    #[state(terminal)]
    Paid,
}

fn main() {}
