//! Mutation: seeds in, inputs that are nearly right out. The same number gives the same inputs.

/// Numbers at which arithmetic goes wrong.
const NUMBERS: [u64; 12] = [
    0,
    1,
    7,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX - 7,
    u64::MAX,
];

/// Makes inputs.
pub(super) struct Mutator {
    state: u64,
    words: &'static [&'static str],
}

impl Mutator {
    pub(super) fn new(seed: u64, words: &'static [&'static str]) -> Self {
        Self {
            state: seed | 1,
            words,
        }
    }

    /// Xorshift: the next of the numbers.
    fn number(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, end: usize) -> usize {
        if end == 0 {
            0
        } else {
            (self.number() % end as u64) as usize
        }
    }

    /// A place: headers stand at the beginning and at the end of files.
    fn place(&mut self, length: usize) -> usize {
        const NEAR: usize = 1024;
        match self.below(4) {
            0 => self.below(length.min(NEAR)),
            1 => length - self.below(length.min(NEAR)).min(length),
            2 => self.below(length.min(NEAR / 8)),
            _ => self.below(length),
        }
    }

    /// The next input.
    pub(super) fn mutate(&mut self, seeds: &[Vec<u8>], most: usize) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(8) {
            self.change(&mut bytes, seeds);
        }
        bytes.truncate(most);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.place(bytes.len()).min(bytes.len());
        let length = self.below(64).min(bytes.len() - at);
        match self.below(10) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..at + length)),
            2 => {
                let part = bytes[at..at + length].to_vec();
                let to = self.place(bytes.len()).min(bytes.len());
                for _ in 0..=self.below(16) {
                    bytes.splice(to..to, part.iter().copied());
                }
            }
            3 => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len());
                let end = from + self.below(256).min(other.len() - from);
                bytes.splice(at..at + length, other[from..end].iter().copied());
            }
            4 if !self.words.is_empty() => {
                let word = self.words[self.below(self.words.len())];
                bytes.splice(at..at, word.bytes());
            }
            5..=7 => {
                let number = NUMBERS[self.below(NUMBERS.len())].to_le_bytes();
                let width = 1 << self.below(4);
                for (to, from) in bytes[at..].iter_mut().zip(&number[..width]) {
                    *to = *from;
                }
            }
            8 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (self.state % 8);
                }
            }
            _ => {
                let byte = self.number() as u8;
                bytes.insert(at, byte);
            }
        }
    }
}
