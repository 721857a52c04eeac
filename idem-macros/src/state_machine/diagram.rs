//! The machine as a picture.

use std::fmt::Write as _;

use super::validate::Machine;

/// A Mermaid `stateDiagram-v2`. Its nodes are the variants, labelled with their texts where they
/// differ.
pub(super) fn mermaid(machine: &Machine) -> String {
    let mut out = String::from("stateDiagram-v2\n");
    for state in &machine.states {
        let name = state.name();
        if state.text != name {
            let _ = writeln!(out, "    {name} : {}", state.text);
        }
    }
    let _ = writeln!(out, "    [*] --> {}", machine.initial().name());
    for state in &machine.states {
        for exit in &state.exits {
            let to = machine.states[*exit].name();
            let _ = writeln!(out, "    {} --> {to}", state.name());
        }
        if state.exits.is_empty() {
            let _ = writeln!(out, "    {} --> [*]", state.name());
        }
    }
    out
}

/// A Graphviz `digraph`; a terminal state has a double border.
pub(super) fn dot(machine: &Machine) -> String {
    let mut out = format!("digraph {} {{\n", machine.name());
    out.push_str("    __begin [shape=point];\n");
    for state in &machine.states {
        let border = if state.exits.is_empty() { 2 } else { 1 };
        let _ = writeln!(
            out,
            "    \"{}\" [shape=box, peripheries={border}];",
            state.text
        );
    }
    let _ = writeln!(out, "    __begin -> \"{}\";", machine.initial().text);
    for state in &machine.states {
        for exit in &state.exits {
            let to = &machine.states[*exit].text;
            let _ = writeln!(out, "    \"{}\" -> \"{to}\";", state.text);
        }
    }
    out.push_str("}\n");
    out
}
