use aya_obj::generated::bpf_func_id::BPF_FUNC_tail_call;
use aya_obj::{Object, ProgramSection};

use super::*;

/// `BPF_JMP | BPF_CALL`.
const CALL: u8 = 0x85;

#[test]
fn programs_on_uprobes_have_no_stack_that_is_the_cpus() {
    let mut names = Vec::new();
    for object in [OBJECT, COUNT_OBJECT] {
        let object = Object::parse(object).unwrap();
        for (name, program) in &object.programs {
            let is_of_uprobe = matches!(
                program.section,
                ProgramSection::UProbe { .. } | ProgramSection::URetProbe { .. }
            );
            if !is_of_uprobe {
                continue;
            }
            let function = &object.functions[&program.function_key()];
            let mut instructions = function.instructions.iter();
            let has_tail_call = instructions.any(|one| {
                (one.code, one.src_reg()) == (CALL, 0) && one.imm == BPF_FUNC_tail_call as i32
            });
            assert!(has_tail_call, "{name}");
            names.push(name.clone());
        }
    }
    assert_eq!(names.len(), 11, "{names:?}");
}

#[test]
fn the_objects_have_the_version_of_this_program() {
    check_abi(OBJECT).unwrap();
    check_abi(COUNT_OBJECT).unwrap();
    assert_eq!(abi_version(b"not an object"), None);
}
