use idem::StateMachine;

#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = 16)]
enum Status {
    #[state(initial, to(Payd))]
    Pending,
    #[state(terminal)]
    Paid,
}

fn main() {}
