//! The plan as bytes (docs/journal.md has the same as a table).
//!
//! ```text
//! plan    = tx:u64 boot:16 durable:flag made:stamp areas:[area] writes:[write] patches:[patch]
//!           file_meta:[meta] removes:[remove] moves:[move] puts:[put] links:[link] dir_meta:[meta]
//! area    = point:path fs stage:path
//! fs      = uuid:?16 fsid:u64 dev:u64 magic:u64 root:ident
//! write   = area:u32 path ident source:path before:u64 after:u64 size:u32 runs:[run] rest:u64
//!           end:?u64 edge:[u64] tail:?u64
//! run     = first:u64 hashes:[u64 u64]
//! patch   = area:u32 path ident before:u64 after:u64 size:u32 blocks:[block]
//! block   = number:u64 start:u32 bytes:blob before:(u64 u64) after:(u64 u64)
//! remove  = area:u32 path ident dir:flag
//! move    = area:u32 from:path to:path ident dir:flag slot:?path replaces:?ident
//! put     = area:u32 staged:path to:path ident dir:flag replaces:?ident make:?make
//! make    = what perm:u32 owner:?(u32 u32) xattrs:[name blob] atime:?stamp mtime:?stamp
//! what    = 0:u8 blob (file), 1:u8 (directory), 2:u8 name (symbolic link)
//! link    = area:u32 from:path to:path ident slot:path replaces:?ident
//! meta    = area:u32 path ident kind:u32 owner:?(u32 u32 u32 u32) perm:?(u32 u32)
//!           xattrs:[name ?blob ?blob] times:?times
//! times   = atime:?stamp mtime:?(stamp stamp) natural:flag
//! ident   = ino:u64 birth:stamp       stamp = seconds:u64 nanoseconds:u32
//! path    = blob    name = blob       blob = length:u32 bytes
//! [x]     = count:u32 x…              ?x = 0 or 1:u8, then x if 1     flag = 0 or 1:u8
//! ```
//!
//! Version 1 knew neither `durable` (all were) nor `patches` nor `make`; version 2 had no `size` of
//! blocks (it was 4096) and neither `end` nor `edge`. Both are read, and not written.

use txos_core::{FileKind, TxId};

use super::codec::{Decoded, Decoder, Encoder, Malformed};
use crate::{
    plan::{
        Area, BLOCK, Change, Link, Make, Meta, Move, PAGE, Patch, PatchBlock, Plan, Put, Remove,
        Run, Times, What, Write, WriteSpec,
    },
    sys::FsIdentity,
};

pub(crate) fn encode(plan: &Plan) -> Vec<u8> {
    let mut to = Encoder::default();
    to.u64(plan.tx.0);
    to.raw(&plan.boot);
    to.bool(plan.durable);
    to.stamp(plan.made);
    to.list(&plan.areas, encode_area);
    to.list(&plan.writes, encode_write);
    to.list(&plan.patches, encode_patch);
    to.list(&plan.file_meta, encode_meta);
    to.list(&plan.removes, |to, op| {
        to.u32(op.area);
        to.path(&op.path);
        to.ident(op.id);
        to.bool(op.dir);
    });
    to.list(&plan.moves, |to, op| {
        to.u32(op.area);
        to.path(&op.from);
        to.path(&op.to);
        to.ident(op.id);
        to.bool(op.dir);
        to.option(op.slot.as_deref(), Encoder::path);
        to.option(op.replaces, Encoder::ident);
    });
    to.list(&plan.puts, |to, op| {
        to.u32(op.area);
        to.path(&op.staged);
        to.path(&op.to);
        to.ident(op.id);
        to.bool(op.dir);
        to.option(op.replaces, Encoder::ident);
        to.option(op.make.as_ref(), encode_make);
    });
    to.list(&plan.links, |to, op| {
        to.u32(op.area);
        to.path(&op.from);
        to.path(&op.to);
        to.ident(op.id);
        to.path(&op.slot);
        to.option(op.replaces, Encoder::ident);
    });
    to.list(&plan.dir_meta, encode_meta);
    to.bytes
}

/// Gives an encoded plan another id.
pub(crate) fn renumber(bytes: &mut [u8], tx: TxId) {
    if let Some(id) = bytes.get_mut(..8) {
        id.copy_from_slice(&tx.0.to_le_bytes());
    }
}

/// Reads a plan as `version` of the format has it.
pub(crate) fn decode(bytes: &[u8], version: u16) -> Decoded<Plan> {
    let first = version == 1;
    let mut from = Decoder::new(bytes);
    let plan = Plan {
        tx: TxId(from.u64()?),
        boot: from.id()?,
        durable: first || from.bool()?,
        made: from.stamp()?,
        areas: from.list(decode_area)?,
        writes: from.list(|from| decode_write(from, version))?,
        patches: if first { Vec::new() } else { from.list(|from| decode_patch(from, version))? },
        file_meta: from.list(decode_meta)?,
        removes: from.list(|from| {
            Ok(Remove {
                area: from.u32()?,
                path: from.path(false)?,
                id: from.ident()?,
                dir: from.bool()?,
            })
        })?,
        moves: from.list(|from| {
            Ok(Move {
                area: from.u32()?,
                from: from.path(false)?,
                to: from.path(false)?,
                id: from.ident()?,
                dir: from.bool()?,
                slot: from.option(|from| from.path(false))?,
                replaces: from.option(Decoder::ident)?,
            })
        })?,
        puts: from.list(|from| {
            Ok(Put {
                area: from.u32()?,
                staged: from.path(false)?,
                to: from.path(false)?,
                id: from.ident()?,
                dir: from.bool()?,
                replaces: from.option(Decoder::ident)?,
                make: if first { None } else { from.option(decode_make)? },
            })
        })?,
        links: from.list(|from| {
            Ok(Link {
                area: from.u32()?,
                from: from.path(false)?,
                to: from.path(false)?,
                id: from.ident()?,
                slot: from.path(false)?,
                replaces: from.option(Decoder::ident)?,
            })
        })?,
        dir_meta: from.list(decode_meta)?,
    };
    from.end()?;
    check_areas(&plan)?;
    Ok(plan)
}

fn check_areas(plan: &Plan) -> Decoded<()> {
    let mut areas = (plan.writes.iter().map(|op| op.area))
        .chain(plan.patches.iter().map(|op| op.area))
        .chain(plan.file_meta.iter().chain(&plan.dir_meta).map(|op| op.area))
        .chain(plan.removes.iter().map(|op| op.area))
        .chain(plan.moves.iter().map(|op| op.area))
        .chain(plan.puts.iter().map(|op| op.area))
        .chain(plan.links.iter().map(|op| op.area));
    if areas.any(|area| area as usize >= plan.areas.len()) {
        return Err(Malformed("an operation names an area that is not listed"));
    }
    Ok(())
}

fn encode_area(to: &mut Encoder, area: &Area) {
    to.path(&area.point);
    to.option(area.fs.uuid, |to, uuid| to.raw(&uuid));
    to.u64(area.fs.fsid);
    to.u64(area.fs.dev);
    to.u64(area.fs.magic);
    to.u64(area.fs.root_ino);
    to.stamp(area.fs.root_birth);
    to.path(&area.stage);
}

fn decode_area(from: &mut Decoder<'_>) -> Decoded<Area> {
    Ok(Area {
        point: from.path(true)?,
        fs: FsIdentity {
            uuid: from.option(Decoder::id)?,
            fsid: from.u64()?,
            dev: from.u64()?,
            magic: from.u64()?,
            root_ino: from.u64()?,
            root_birth: from.stamp()?,
        },
        stage: from.path(true)?,
    })
}

fn encode_write(to: &mut Encoder, op: &Write) {
    to.u32(op.area);
    to.path(&op.path);
    to.ident(op.id);
    to.path(&op.source);
    to.u64(op.spec.before_size);
    to.u64(op.spec.after_size);
    to.u32(op.spec.block as u32);
    to.list(&op.spec.runs, |to, run| {
        to.u64(run.first);
        to.list(&run.hashes, |to, (before, after)| {
            to.u64(*before);
            to.u64(*after);
        });
    });
    to.u64(op.spec.rest);
    to.option(op.spec.end, Encoder::u64);
    to.list(&op.spec.edge, |to, hash| to.u64(*hash));
    to.option(op.spec.tail, Encoder::u64);
}

fn decode_write(from: &mut Decoder<'_>, version: u16) -> Decoded<Write> {
    Ok(Write {
        area: from.u32()?,
        path: from.path(false)?,
        id: from.ident()?,
        source: from.path(false)?,
        spec: WriteSpec {
            before_size: from.u64()?,
            after_size: from.u64()?,
            block: decode_size(from, version)?,
            runs: from.list(|from| {
                Ok(Run {
                    first: from.u64()?,
                    hashes: from.list(|from| Ok((from.u64()?, from.u64()?)))?,
                })
            })?,
            rest: from.u64()?,
            end: if version < 3 { None } else { from.option(Decoder::u64)? },
            edge: if version < 3 { Vec::new() } else { from.list(Decoder::u64)? },
            tail: from.option(Decoder::u64)?,
        },
    })
}

fn encode_patch(to: &mut Encoder, op: &Patch) {
    to.u32(op.area);
    to.path(&op.path);
    to.ident(op.id);
    to.u64(op.before_size);
    to.u64(op.after_size);
    to.u32(op.block as u32);
    to.list(&op.blocks, |to, block| {
        to.u64(block.number);
        to.u32(block.start);
        to.blob(&block.bytes);
        block.before.iter().chain(&block.after).for_each(|hash| to.u64(*hash));
    });
}

fn decode_patch(from: &mut Decoder<'_>, version: u16) -> Decoded<Patch> {
    let mut patch = Patch {
        area: from.u32()?,
        path: from.path(false)?,
        id: from.ident()?,
        before_size: from.u64()?,
        after_size: from.u64()?,
        block: decode_size(from, version)?,
        blocks: Vec::new(),
    };
    let size = patch.block;
    patch.blocks = from.list(|from| {
        let block = PatchBlock {
            number: from.u64()?,
            start: from.u32()?,
            bytes: from.blob()?.to_vec(),
            before: [from.u64()?, from.u64()?],
            after: [from.u64()?, from.u64()?],
        };
        let end = u64::from(block.start) + block.bytes.len() as u64;
        if end > size || block.number > u64::MAX / size - 1 {
            return Err(Malformed("a block is longer than blocks are"));
        }
        Ok(block)
    })?;
    Ok(patch)
}

/// The size of blocks, which older versions did not say.
fn decode_size(from: &mut Decoder<'_>, version: u16) -> Decoded<u64> {
    if version < 3 {
        return Ok(PAGE);
    }
    match u64::from(from.u32()?) {
        size @ (BLOCK | PAGE) => Ok(size),
        _ => Err(Malformed("its blocks have a size that is unknown")),
    }
}

fn encode_make(to: &mut Encoder, make: &Make) {
    match &make.what {
        What::File(bytes) => {
            to.u8(0);
            to.blob(bytes);
        }
        What::Dir => to.u8(1),
        What::Symlink(target) => {
            to.u8(2);
            to.blob(target.to_bytes());
        }
    }
    to.u32(make.perm);
    to.option(make.owner, |to, (uid, gid)| {
        to.u32(uid);
        to.u32(gid);
    });
    to.list(&make.xattrs, |to, (name, value)| {
        to.blob(name.to_bytes());
        to.blob(value);
    });
    to.option(make.atime, Encoder::stamp);
    to.option(make.mtime, Encoder::stamp);
}

fn decode_make(from: &mut Decoder<'_>) -> Decoded<Make> {
    Ok(Make {
        what: match from.u8()? {
            0 => What::File(from.blob()?.to_vec()),
            1 => What::Dir,
            2 => What::Symlink(from.name()?),
            _ => return Err(Malformed("a type is unknown")),
        },
        perm: from.u32()?,
        owner: from.option(|from| Ok((from.u32()?, from.u32()?)))?,
        xattrs: from.list(|from| Ok((from.name()?, from.blob()?.to_vec())))?,
        atime: from.option(Decoder::stamp)?,
        mtime: from.option(Decoder::stamp)?,
    })
}

fn encode_meta(to: &mut Encoder, op: &Meta) {
    to.u32(op.area);
    to.path(&op.path);
    to.ident(op.id);
    to.u32(op.kind.mode_bits());
    to.option(op.owner, |to, owner| {
        for id in [owner.before.0, owner.before.1, owner.after.0, owner.after.1] {
            to.u32(id);
        }
    });
    to.option(op.perm, |to, perm| {
        to.u32(perm.before);
        to.u32(perm.after);
    });
    to.list(&op.xattrs, |to, (name, value)| {
        to.blob(name.to_bytes());
        to.option(value.before.as_deref(), Encoder::blob);
        to.option(value.after.as_deref(), Encoder::blob);
    });
    to.option(op.times, |to, times| {
        to.option(times.atime, Encoder::stamp);
        to.option(times.mtime, |to, mtime| {
            to.stamp(mtime.before);
            to.stamp(mtime.after);
        });
        to.bool(times.natural);
    });
}

fn decode_meta(from: &mut Decoder<'_>) -> Decoded<Meta> {
    Ok(Meta {
        area: from.u32()?,
        path: from.path(false)?,
        id: from.ident()?,
        kind: FileKind::from_mode(from.u32()?).ok_or(Malformed("a type is unknown"))?,
        owner: from.option(|from| {
            Ok(Change { before: (from.u32()?, from.u32()?), after: (from.u32()?, from.u32()?) })
        })?,
        perm: from.option(|from| Ok(Change { before: from.u32()?, after: from.u32()? }))?,
        xattrs: from.list(|from| {
            let name = from.name()?;
            let mut value = || from.option(|from| from.blob().map(<[u8]>::to_vec));
            Ok((name, Change { before: value()?, after: value()? }))
        })?,
        times: from.option(|from| {
            Ok(Times {
                atime: from.option(Decoder::stamp)?,
                mtime: from
                    .option(|from| Ok(Change { before: from.stamp()?, after: from.stamp()? }))?,
                natural: from.bool()?,
            })
        })?,
    })
}
