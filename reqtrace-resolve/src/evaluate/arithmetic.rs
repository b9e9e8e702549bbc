//! Instructions that compute: an instruction and what its operands hold in, the result and the flags out.

use iced_x86::{ConditionCode, Instruction, Mnemonic};

use super::{Machine, mask};

/// The flags that conditions ask for; `None`: not known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    zero: Option<bool>,
    sign: Option<bool>,
    carry: Option<bool>,
    overflow: Option<bool>,
}

impl Flags {
    /// Of a result of so many bytes; it has neither carry nor overflow.
    fn of(result: u64, size: usize) -> Self {
        let result = result & mask(size);
        Self {
            zero: Some(result == 0),
            sign: Some(result >> (8 * size - 1) != 0),
            carry: Some(false),
            overflow: Some(false),
        }
    }

    fn of_sum(a: u64, b: u64, size: usize) -> Self {
        let sum = a.wrapping_add(b) & mask(size);
        let sign = |value: u64| value >> (8 * size - 1) & 1;
        Self {
            carry: Some(sum < a & mask(size)),
            overflow: Some(sign(a) == sign(b) && sign(sum) != sign(a)),
            ..Self::of(sum, size)
        }
    }

    fn of_difference(a: u64, b: u64, size: usize) -> Self {
        let (a, b) = (a & mask(size), b & mask(size));
        let difference = a.wrapping_sub(b) & mask(size);
        let sign = |value: u64| value >> (8 * size - 1) & 1;
        Self {
            carry: Some(a < b),
            overflow: Some(sign(a) != sign(b) && sign(difference) != sign(a)),
            ..Self::of(difference, size)
        }
    }

    /// Whether a condition holds; `None`: it depends on what is not known.
    pub(super) fn hold(&self, condition: ConditionCode) -> Option<bool> {
        let is_less = || Some(self.sign? != self.overflow?);
        Some(match condition {
            ConditionCode::o => self.overflow?,
            ConditionCode::no => !self.overflow?,
            ConditionCode::b => self.carry?,
            ConditionCode::ae => !self.carry?,
            ConditionCode::e => self.zero?,
            ConditionCode::ne => !self.zero?,
            ConditionCode::be => self.carry? || self.zero?,
            ConditionCode::a => !self.carry? && !self.zero?,
            ConditionCode::s => self.sign?,
            ConditionCode::ns => !self.sign?,
            ConditionCode::l => is_less()?,
            ConditionCode::ge => !is_less()?,
            ConditionCode::le => self.zero? || is_less()?,
            ConditionCode::g => !self.zero? && !is_less()?,
            ConditionCode::p | ConditionCode::np | ConditionCode::None => return None,
        })
    }
}

impl Machine<'_> {
    /// Does an instruction that is no jump. `None`: the run ends here.
    pub(super) fn compute(&mut self, code: &Instruction) -> Option<()> {
        let size = match code.op_count() {
            0 => 8,
            _ => Self::size(code, 0),
        };
        let condition = code.condition_code();
        match code.mnemonic() {
            Mnemonic::Nop | Mnemonic::Endbr64 => Some(()),
            Mnemonic::Mov | Mnemonic::Movzx => {
                let value = self.read(code, 1);
                self.write(code, 0, value)
            }
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let from = Self::size(code, 1);
                let value = self.read(code, 1).map(|value| sign_extended(value, from));
                self.write(code, 0, value)
            }
            Mnemonic::Lea => {
                let address = self.address(code);
                self.write(code, 0, address)
            }
            Mnemonic::Add => {
                self.result(code, |a, b| (a.wrapping_add(b), Flags::of_sum(a, b, size)))
            }
            Mnemonic::Sub => self.result(code, |a, b| {
                (a.wrapping_sub(b), Flags::of_difference(a, b, size))
            }),
            // What is compared with itself is equal, and zero, whatever it is.
            Mnemonic::Xor if is_with_itself(code) => {
                self.flags = Flags::of(0, size);
                self.write(code, 0, Some(0))
            }
            Mnemonic::And => self.result(code, |a, b| (a & b, Flags::of(a & b, size))),
            Mnemonic::Or => self.result(code, |a, b| (a | b, Flags::of(a | b, size))),
            Mnemonic::Xor => self.result(code, |a, b| (a ^ b, Flags::of(a ^ b, size))),
            Mnemonic::Test => {
                let both = self.read(code, 0).zip(self.read(code, 1));
                self.flags = both.map_or_else(Flags::default, |(a, b)| Flags::of(a & b, size));
                Some(())
            }
            Mnemonic::Cmp => {
                let both = self.read(code, 0).zip(self.read(code, 1));
                self.flags =
                    both.map_or_else(Flags::default, |(a, b)| Flags::of_difference(a, b, size));
                Some(())
            }
            Mnemonic::Inc | Mnemonic::Dec => {
                let by: u64 = if code.mnemonic() == Mnemonic::Inc {
                    1
                } else {
                    u64::MAX
                };
                let value = self.read(code, 0);
                let carry = self.flags.carry;
                self.flags = value.map_or_else(Flags::default, |a| Flags {
                    carry,
                    ..Flags::of_sum(a, by, size)
                });
                self.write(code, 0, value.map(|value| value.wrapping_add(by)))
            }
            Mnemonic::Not => {
                let value = self.read(code, 0);
                self.write(code, 0, value.map(|value| !value))
            }
            Mnemonic::Neg => {
                let value = self.read(code, 0);
                self.flags =
                    value.map_or_else(Flags::default, |a| Flags::of_difference(0, a, size));
                self.write(code, 0, value.map(u64::wrapping_neg))
            }
            Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar => self.shift(code, size),
            Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc => self.bit(code, size),
            mnemonic if is_set(mnemonic) => {
                let value = self.flags.hold(condition);
                self.write(code, 0, value.map(u64::from))
            }
            mnemonic if is_conditional_move(mnemonic) => {
                let value = match self.flags.hold(condition) {
                    Some(true) => self.read(code, 1),
                    Some(false) => self.read(code, 0),
                    None => None,
                };
                self.write(code, 0, value)
            }
            _ => self.forget(code),
        }
    }

    /// Two operands, of which the first is the result's place.
    fn result(&mut self, code: &Instruction, of: impl Fn(u64, u64) -> (u64, Flags)) -> Option<()> {
        let both = self.read(code, 0).zip(self.read(code, 1));
        let (value, flags) = match both {
            Some((a, b)) => {
                let (value, flags) = of(a, b);
                (Some(value), flags)
            }
            None => (None, Flags::default()),
        };
        self.flags = flags;
        self.write(code, 0, value)
    }

    fn shift(&mut self, code: &Instruction, size: usize) -> Option<()> {
        let both = self.read(code, 0).zip(self.read(code, 1));
        let bits = if size == 8 { 0x3f } else { 0x1f };
        let value = both.map(|(value, by)| {
            let by = (by & bits) as u32;
            match code.mnemonic() {
                Mnemonic::Shl => value << by,
                Mnemonic::Shr => value >> by,
                _ => (sign_extended(value, size).cast_signed() >> by).cast_unsigned(),
            }
        });
        // The carry is the last bit that has left, and nobody asks for it here.
        self.flags = value.map_or_else(Flags::default, |value| Flags {
            carry: None,
            overflow: None,
            ..Flags::of(value, size)
        });
        self.write(code, 0, value)
    }

    fn bit(&mut self, code: &Instruction, size: usize) -> Option<()> {
        let both = self.read(code, 0).zip(self.read(code, 1));
        self.flags.carry = both.map(|(value, bit)| value >> (bit % (8 * size as u64)) & 1 != 0);
        if code.mnemonic() == Mnemonic::Bt {
            return Some(());
        }
        let value = both.map(|(value, bit)| {
            let bit = 1 << (bit % (8 * size as u64));
            match code.mnemonic() {
                Mnemonic::Bts => value | bit,
                Mnemonic::Btr => value & !bit,
                _ => value ^ bit,
            }
        });
        self.write(code, 0, value)
    }
}

fn sign_extended(value: u64, size: usize) -> u64 {
    let above = 64 - 8 * size as u32;
    ((value << above).cast_signed() >> above).cast_unsigned()
}

fn is_with_itself(code: &Instruction) -> bool {
    code.op0_kind() == code.op1_kind()
        && code.op0_kind() == iced_x86::OpKind::Register
        && code.op0_register() == code.op1_register()
}

const fn is_set(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Seto
            | Mnemonic::Setno
            | Mnemonic::Setb
            | Mnemonic::Setae
            | Mnemonic::Sete
            | Mnemonic::Setne
            | Mnemonic::Setbe
            | Mnemonic::Seta
            | Mnemonic::Sets
            | Mnemonic::Setns
            | Mnemonic::Setl
            | Mnemonic::Setge
            | Mnemonic::Setle
            | Mnemonic::Setg
    )
}

const fn is_conditional_move(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Cmovo
            | Mnemonic::Cmovno
            | Mnemonic::Cmovb
            | Mnemonic::Cmovae
            | Mnemonic::Cmove
            | Mnemonic::Cmovne
            | Mnemonic::Cmovbe
            | Mnemonic::Cmova
            | Mnemonic::Cmovs
            | Mnemonic::Cmovns
            | Mnemonic::Cmovl
            | Mnemonic::Cmovge
            | Mnemonic::Cmovle
            | Mnemonic::Cmovg
    )
}
