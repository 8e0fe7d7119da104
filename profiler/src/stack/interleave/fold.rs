//! Which native frames are shown: all but what the Python frames stand for.

use super::{Home, Part, Role};

/// For each native frame whether it is shown: the evaluator and the machinery that touches it are
/// not, nor how the thread came to its outermost evaluator.
pub(super) fn shown(roles: &[Role]) -> Vec<bool> {
    let mut shown: Vec<bool> = roles
        .iter()
        .map(|role| !matches!(role, Role::Evaluator | Role::Piece))
        .collect();
    fold_from(roles, &mut shown, 0..roles.len());
    fold_from(roles, &mut shown, (0..roles.len()).rev());
    if let Some(outermost) = roles.iter().rposition(|role| *role == Role::Evaluator) {
        fold_start(roles, &mut shown, outermost);
    }
    shown
}

/// Machinery that follows an evaluator without a break, in this direction.
fn fold_from(roles: &[Role], shown: &mut [bool], indices: impl Iterator<Item = usize>) {
    let mut touches = false;
    for index in indices {
        touches = match roles[index] {
            Role::Evaluator => true,
            Role::Piece | Role::Machinery | Role::Clears => touches,
            _ => false,
        };
        if touches {
            shown[index] = false;
        }
    }
}

/// Below the outermost evaluator: the C library's and the interpreter's own start.
fn fold_start(roles: &[Role], shown: &mut [bool], outermost: usize) {
    let below = outermost + 1;
    let is_start = |role: &Role| {
        matches!(
            role,
            Role::Start
                | Role::Machinery
                | Role::Nameless {
                    home: Home::Interpreter | Home::Libc,
                    piece: false
                }
        )
    };
    // From the root on; what has no name is start only before something that is.
    let mut from = roles.len();
    for index in (below..roles.len()).rev() {
        match &roles[index] {
            role if !is_start(role) => break,
            Role::Nameless { .. } => {}
            _ => from = index,
        }
    }
    if roles[below..].iter().all(is_start) {
        from = below;
    }
    shown[from..].fill(false);
    // And from the evaluator on, where a program has the interpreter's start inside its own.
    let own = |role: &&Role| matches!(role, Role::Start | Role::Machinery);
    let started = roles[below..].iter().take_while(own).count();
    shown[below..below + started].fill(false);
}

/// All of a chain of a thread that runs no Python; evaluators too, for nothing stands for them.
pub(super) fn without_python(roles: &[Role]) -> Vec<Part> {
    (0..roles.len()).map(Part::Native).collect()
}
