use idem::StateMachine;

#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(colum = 16)]
enum Status {
    #[state(initial, to(Paid))]
    Pending,
    #[state(terminal)]
    Paid,
}

fn main() {}
