use idem::StateMachine;

#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = 0)]
enum Status {
    #[state(initial, to(Paid))]
    Pending,
    #[state(terminal)]
    Paid,
}

fn main() {}
