use idem::StateMachine;

#[derive(StateMachine, Debug, PartialEq, Eq)]
#[state_machine(column = 16)]
enum Status {
    #[state(initial, to(Paid))]
    Pending,
    #[state(terminal)]
    Paid,
}

fn main() {}
