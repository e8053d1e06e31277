use super::bpf::{Call, run};
use super::*;

const X32_BIT: u32 = 0x4000_0000;
use proptest::prelude::*;

const POLICIES: [bool; 2] = [false, true];

fn policy(allow_net: bool) -> Policy {
    Policy { allow_net, ..Policy::default() }
}

/// What the rules say, without any BPF: the reference that the program is held against.
fn expected(arch: Arch, nr: u32, args: &[u64; 6], policy: &Policy) -> u32 {
    if nr >= arch.first_unknown() && nr != SKIPPED {
        return ABSENT;
    }
    let rule = arch.name(nr).and_then(rules::rule_of);
    match under_policy(rule.map_or(Action::Allow, |rule| rule.decide(args)), policy) {
        Action::Allow => RET_ALLOW,
        Action::Errno(errno) => RET_ERRNO | u32::from(errno),
        Action::Ask(_) => RET_USER_NOTIF,
    }
}

/// Registers near what the rules look at, with junk in the halves that the kernel ignores.
fn arg() -> impl Strategy<Value = u64> {
    let low = prop_oneof![
        Just(0u32),
        0u32..50,
        Just(0x5412),
        Just(0x541C),
        (0u32..32).prop_map(|bit| 1 << bit),
        any::<u32>(),
    ];
    (low, prop_oneof![Just(0u32), any::<u32>()])
        .prop_map(|(low, high)| u64::from(high) << 32 | u64::from(low))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn the_program_does_what_the_rules_say(
        arm in any::<bool>(),
        net in any::<bool>(),
        hides in any::<bool>(),
        nr in prop_oneof![0u32..480, any::<u32>(), Just(SKIPPED), Just(X32_BIT)],
        args in prop::array::uniform6(arg()),
    ) {
        let arch = if arm { Arch::Aarch64 } else { Arch::X86_64 };
        let policy = Policy { hidden_attribute: hides.then(String::new), ..policy(net) };
        let filter = Filter::for_arch(arch, &policy);
        let answer = run(filter.program(), &Call { nr, arch: arch.audit(), args });
        prop_assert_eq!(answer, Some(expected(arch, nr, &args, &policy)));
    }
}

#[test]
fn every_rule_is_reached_on_both_architectures() {
    for arch in [Arch::X86_64, Arch::Aarch64] {
        for (rule, net) in RULES.iter().flat_map(|rule| POLICIES.map(|net| (rule, net))) {
            let Some(nr) = arch.number(rule.call) else { continue };
            let program = Filter::for_arch(arch, &policy(net)).program;
            for case in rule.cases {
                let mut args = [0; 6];
                for test in case.when {
                    match *test {
                        Test::Bits(arg, mask) => args[usize::from(arg)] = u64::from(mask),
                        Test::Is(arg, value) | Test::AtLeast(arg, value) => {
                            args[usize::from(arg)] = u64::from(value);
                        }
                        Test::Given(arg) => args[usize::from(arg)] = 1 << 40,
                    }
                }
                let answer = run(&program, &Call { nr, arch: arch.audit(), args });
                assert_eq!(answer, Some(expected(arch, nr, &args, &policy(net))), "{}", rule.call);
            }
        }
    }
}

#[test]
fn a_foreign_architecture_is_absent() {
    let i386 = 0x4000_0003;
    let arm = 0x4000_0028;
    for (arch, foreign) in [(Arch::X86_64, i386), (Arch::Aarch64, arm)] {
        let program = Filter::for_arch(arch, &Policy::default()).program;
        for nr in 0..500 {
            let call = Call { nr, arch: foreign, args: [0; 6] };
            assert_eq!(run(&program, &call), Some(ABSENT));
        }
    }
    let program = Filter::for_arch(Arch::X86_64, &Policy::default()).program;
    let x32 = Call { nr: X32_BIT | 1, arch: Arch::X86_64.audit(), args: [0; 6] };
    assert_eq!(run(&program, &x32), Some(ABSENT));
}

#[test]
fn the_table_of_numbers_is_sorted_and_names_every_rule() {
    assert!(NUMBERS.is_sorted_by(|a, b| a.0 < b.0));
    for rule in RULES {
        assert!(NUMBERS.iter().any(|row| row.0 == rule.call));
        assert_eq!(RULES.iter().filter(|other| other.call == rule.call).count(), 1);
    }
}

#[test]
fn calls_of_the_data_path_are_decided_by_their_number_alone() {
    // What the kernel's cache needs: no load of an argument on the way to the answer.
    let program = Filter::new(&Policy::default()).program;
    for call in ["read", "write", "openat", "newfstatat", "close", "mmap", "getdents64", "futex"] {
        let Some(nr) = Arch::HOST.number(call) else { continue };
        let without: Vec<_> = program
            .iter()
            .map(|&insn| if insn.code == 0x20 && insn.k >= 16 { ret(0) } else { insn })
            .collect();
        let call = Call { nr, arch: Arch::HOST.audit(), args: [1; 6] };
        assert_eq!(run(&without, &call), Some(RET_ALLOW));
    }
}
