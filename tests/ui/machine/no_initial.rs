use idem::StateMachine;

#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = 16)]
enum Status {
    #[state(to(Paid))]
    Pending,
    #[state(terminal)]
    Paid,
}

fn main() {}
