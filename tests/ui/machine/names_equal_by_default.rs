use idem::StateMachine;

#[derive(StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = 16)]
enum Status {
    #[state(initial, to(SmsSent))]
    SMSSent,
    #[state(terminal)]
    SmsSent,
}

fn main() {}
