//! Just enough of BTF, the kernel's own type information, to find where a field lies.
//!
//! Pure: bytes in, offsets out. The format is `Documentation/bpf/btf.rst` of the kernel.

use std::fmt;

/// The kernel's type information, parsed as far as an index of where each type begins.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where type `id` begins in `types`, at `id - 1`.
    starts: Vec<u32>,
}

/// What was not found, or not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BtfError {
    /// The bytes are no BTF of this machine's byte order.
    Malformed(&'static str),
    /// No structure of this name.
    NoStruct(String),
    /// The structure has no such member.
    NoMember(String),
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(f, "malformed BTF: {what}"),
            Self::NoStruct(name) => write!(f, "BTF has no structure `{name}`"),
            Self::NoMember(path) => write!(f, "BTF has no member `{path}`"),
        }
    }
}

impl std::error::Error for BtfError {}

const MAGIC: u32 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
/// How deep anonymous structures may nest before a file is taken to be a cycle.
const MAX_NESTING: u32 = 16;
/// Members that are looked at for one name, those of anonymous structures included: without it a
/// file whose structures contain each other many times over is searched without end.
const MAX_MEMBERS: u32 = 1 << 16;

/// The fixed part of one type.
#[derive(Clone, Copy)]
struct Head {
    name: u32,
    kind: u32,
    vlen: u32,
    bitfields: bool,
    /// Size or referenced type.
    other: u32,
    /// Where what follows the fixed part begins.
    body: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

impl<'a> Btf<'a> {
    /// Index `bytes`, the content of `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    /// [`BtfError::Malformed`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let word = |at| u32_at(bytes, at).ok_or(BtfError::Malformed("header too short"));
        if word(0)? & 0xffff != MAGIC {
            return Err(BtfError::Malformed("no magic number"));
        }
        let header = word(4)? as usize;
        let part = |offset: u32, length: u32| {
            let start = header.checked_add(offset as usize)?;
            bytes.get(start..start.checked_add(length as usize)?)
        };
        let types = part(word(8)?, word(12)?).ok_or(BtfError::Malformed("types out of bounds"))?;
        let strings =
            part(word(16)?, word(20)?).ok_or(BtfError::Malformed("strings out of bounds"))?;
        let mut btf = Self {
            types,
            strings,
            starts: Vec::with_capacity(types.len() / 24),
        };
        let mut at = 0;
        while at < types.len() {
            let head = btf
                .head_at(at)
                .ok_or(BtfError::Malformed("type too short"))?;
            let vlen = head.vlen as usize;
            let body = match head.kind {
                1 | 14 | 17 => 4,
                3 => 12,
                KIND_STRUCT | KIND_UNION | 15 | 19 => vlen * 12,
                KIND_ENUM | KIND_FUNC_PROTO => vlen * 8,
                2 | 7..=12 | 16 | 18 => 0,
                _ => return Err(BtfError::Malformed("unknown kind of type")),
            };
            btf.starts.push(at as u32);
            at = head.body + body;
        }
        Ok(btf)
    }

    fn head_at(&self, at: usize) -> Option<Head> {
        let info = u32_at(self.types, at + 4)?;
        Some(Head {
            name: u32_at(self.types, at)?,
            kind: info >> 24 & 0x1f,
            vlen: info & 0xffff,
            bitfields: info >> 31 != 0,
            other: u32_at(self.types, at + 8)?,
            body: at + 12,
        })
    }

    fn head(&self, id: u32) -> Option<Head> {
        self.head_at(*self.starts.get(id.checked_sub(1)? as usize)? as usize)
    }

    fn is_named(&self, name: u32, wanted: &str) -> bool {
        let Some(rest) = self.strings.get(name as usize..) else {
            return false;
        };
        rest.strip_prefix(wanted.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&0))
    }

    fn find(&self, kind: u32, name: &str) -> Option<Head> {
        let mut heads = self
            .starts
            .iter()
            .filter_map(|&at| self.head_at(at as usize));
        heads.find(|head| head.kind == kind && self.is_named(head.name, name))
    }

    /// Bytes from the start of structure `path[0]` to its member `path[1]`, that one's member
    /// `path[2]`, and so on; members of anonymous structures count as the outer one's.
    ///
    /// # Errors
    /// [`BtfError::NoStruct`], [`BtfError::NoMember`].
    pub fn offset_of(&self, path: &[&str]) -> Result<u32, BtfError> {
        let (name, members) = path
            .split_first()
            .ok_or(BtfError::Malformed("empty path"))?;
        let mut head = self
            .find(KIND_STRUCT, name)
            .ok_or_else(|| BtfError::NoStruct((*name).to_owned()))?;
        let mut bits = 0_u32;
        for member in members {
            let no_member = || BtfError::NoMember(path.join("."));
            let mut left = MAX_MEMBERS;
            let (type_id, offset) = self
                .member(head, member, 0, &mut left)
                .ok_or_else(no_member)?;
            bits = bits.checked_add(offset).ok_or_else(no_member)?;
            if let Some(next) = self.resolve(type_id) {
                head = next;
            }
        }
        Ok(bits / 8)
    }

    /// Bytes that a structure has.
    ///
    /// # Errors
    /// [`BtfError::NoStruct`].
    pub fn size_of(&self, name: &str) -> Result<u32, BtfError> {
        self.find(KIND_STRUCT, name)
            .map(|head| head.other)
            .ok_or_else(|| BtfError::NoStruct(name.to_owned()))
    }

    /// Whether the enumeration `name` has a value of the name `value`.
    #[must_use]
    pub fn has_value(&self, name: &str, value: &str) -> bool {
        self.find(KIND_ENUM, name).is_some_and(|head| {
            (0..head.vlen as usize).any(|index| {
                u32_at(self.types, head.body + index * 8)
                    .is_some_and(|name| self.is_named(name, value))
            })
        })
    }

    /// The type and bit offset of a member.
    fn member(&self, head: Head, name: &str, nesting: u32, left: &mut u32) -> Option<(u32, u32)> {
        if nesting > MAX_NESTING || !matches!(head.kind, KIND_STRUCT | KIND_UNION) {
            return None;
        }
        (0..head.vlen as usize).find_map(|index| {
            *left = left.checked_sub(1)?;
            let at = head.body + index * 12;
            let member_name = u32_at(self.types, at)?;
            let type_id = u32_at(self.types, at + 4)?;
            let raw = u32_at(self.types, at + 8)?;
            let offset = if head.bitfields {
                raw & 0x00ff_ffff
            } else {
                raw
            };
            if self.is_named(member_name, name) {
                return Some((type_id, offset));
            }
            if !self.is_named(member_name, "") {
                return None;
            }
            let head = self.resolve(type_id)?;
            let (inner, inner_offset) = self.member(head, name, nesting + 1, left)?;
            Some((inner, offset.checked_add(inner_offset)?))
        })
    }

    /// The structure behind typedefs and qualifiers.
    fn resolve(&self, mut id: u32) -> Option<Head> {
        for _ in 0..MAX_NESTING {
            let head = self.head(id)?;
            match head.kind {
                8..=11 | 18 => id = head.other,
                _ => return Some(head),
            }
        }
        None
    }

    /// How many arguments the tracepoint passes to a program, by its `btf_trace_` typedef.
    #[must_use]
    pub fn tracepoint_arguments(&self, tracepoint: &str) -> Option<u32> {
        let pointer = self.head(
            self.find(KIND_TYPEDEF, &format!("btf_trace_{tracepoint}"))?
                .other,
        )?;
        let proto = self.head(pointer.other)?;
        // The first parameter is the tracepoint's private data, which programs do not see.
        (proto.kind == KIND_FUNC_PROTO).then(|| proto.vlen.saturating_sub(1))
    }

    /// The same types under the same numbers, but all blank except the tracepoints' typedefs and
    /// the iterators' functions: all that an attachment asks for, at a tenth of the memory.
    #[must_use]
    pub fn with_attachments_only(&self, tracepoints: &[&str], iterators: &[&str]) -> Vec<u8> {
        const HEADER: u32 = 24;
        const BLANK: u32 = 7 << 24; // a forward declaration has no body
        let typedefs = tracepoints
            .iter()
            .map(|name| (KIND_TYPEDEF, format!("btf_trace_{name}")));
        let functions = iterators
            .iter()
            .map(|name| (KIND_FUNC, format!("bpf_iter_{name}")));
        let names: Vec<(u32, String)> = typedefs.chain(functions).collect();
        let mut strings = vec![0u8];
        let mut types = Vec::with_capacity(self.starts.len() * 12);
        let mut push = |word: u32| types.extend_from_slice(&word.to_le_bytes());
        for &at in &self.starts {
            let name = self.head_at(at as usize).and_then(|head| {
                names
                    .iter()
                    .find(|(kind, name)| head.kind == *kind && self.is_named(head.name, name))
            });
            match name {
                Some((kind, name)) => {
                    push(strings.len() as u32);
                    push(kind << 24);
                    strings.extend_from_slice(name.as_bytes());
                    strings.push(0);
                }
                None => {
                    push(0);
                    push(BLANK);
                }
            }
            push(0);
        }
        let lengths = (types.len() as u32, strings.len() as u32);
        let header = [MAGIC | 1 << 16, HEADER, 0, lengths.0, lengths.0, lengths.1];
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.append(&mut types);
        bytes.append(&mut strings);
        bytes
    }
}
