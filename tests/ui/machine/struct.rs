use idem::StateMachine;

#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = 16)]
struct Status {
    paid: bool,
}

fn main() {}
