//! A call, displayed by the kernel's names, for messages.

use core::fmt;

use zerocopy::{FromBytes, IntoBytes};

use crate::{
    ioctl::{AttrFlags, AttrId, IoctlAttr, IoctlHeader, Method, attr, method, object},
    verbs::{QpType, SrqType},
    write_cmd::WriteCommand,
};

/// A call, displayed by the names that the tables of this crate have: its method, or the command
/// that INVOKE_WRITE executes, and the type of the queue that it creates. The alternate form
/// (`{:#}`) lists the attributes, for a call that was refused. A value that is not in a table is
/// displayed as a number.
///
/// ```text
/// UVERBS_METHOD_QP_CREATE of type RawPacket
/// method 0x7 of UVERBS_OBJECT_CQ (attributes: UVERBS_ATTR_UHW_IN, 0x9 mandatory)
/// ```
#[derive(Clone, Debug)]
pub struct NamedCall {
    method: Method,
    attrs: Vec<IoctlAttr>,
}

impl NamedCall {
    /// Reads a header and the attributes that follow it. `None` if the words are too few for a
    /// header; attributes end with the words.
    pub fn read(words: &[u64]) -> Option<Self> {
        let (header, rest) = IoctlHeader::read_from_prefix(words.as_bytes()).ok()?;
        let attrs = rest
            .chunks_exact(size_of::<IoctlAttr>())
            .take(header.num_attrs.into())
            .filter_map(|attr| IoctlAttr::read_from_bytes(attr).ok());
        Some(Self { method: Method::of(&header), attrs: attrs.collect() })
    }

    /// Returns the method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Returns the number in an attribute of at most eight bytes, which has it inline.
    fn number(&self, id: AttrId) -> Option<u64> {
        let attr = self.attrs.iter().find(|attr| attr.attr_id == id.0)?;
        let len = usize::from(attr.len);
        let mut number = [0; 8];
        number.get_mut(..len)?.copy_from_slice(attr.data.as_bytes().get(..len)?);
        Some(u64::from_ne_bytes(number))
    }

    /// Returns the command, if the method is INVOKE_WRITE.
    pub fn command(&self) -> Option<WriteCommand> {
        if self.method != method::INVOKE_WRITE {
            return None;
        }
        self.number(attr::invoke_write::WRITE_CMD).map(|command| WriteCommand(command as u32))
    }

    fn queue_type(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, name): (_, fn(u8) -> Option<String>) = match self.method {
            method::QP_CREATE => (self.number(attr::create_qp::TYPE), |raw| {
                QpType::from_raw(raw).map(|name| format!("{name:?}"))
            }),
            method::SRQ_CREATE => (self.number(attr::create_srq::TYPE), |raw| {
                SrqType::from_raw(raw).map(|name| format!("{name:?}"))
            }),
            _ => return Ok(()),
        };
        let Some(number) = number else { return Ok(()) };
        match u8::try_from(number).ok().and_then(name) {
            Some(name) => write!(f, " of type {name}"),
            None => write!(f, " of type {number:#x}"),
        }
    }
}

impl fmt::Display for NamedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Method { object, id } = self.method;
        match (self.command(), self.method.name(), object::name(object)) {
            (Some(command), ..) => match command.name() {
                Some(name) => f.write_str(name)?,
                None => write!(f, "write command {:#x}", command.0)?,
            },
            (None, Some(name), _) => f.write_str(name)?,
            (None, None, Some(object)) => write!(f, "method {id:#x} of {object}")?,
            (None, None, None) => write!(f, "method {id:#x} of object {object:#x}")?,
        }
        self.queue_type(f)?;
        if !f.alternate() || self.attrs.is_empty() {
            return Ok(());
        }
        for (index, attr) in self.attrs.iter().enumerate() {
            f.write_str(if index == 0 { " (attributes: " } else { ", " })?;
            match AttrId(attr.attr_id).name(self.method) {
                Some(name) => f.write_str(name)?,
                None => {
                    let flags = AttrFlags::from_bits_retain(attr.flags);
                    let must = flags.contains(AttrFlags::MANDATORY);
                    write!(f, "{:#x}{}", attr.attr_id, if must { " mandatory" } else { "" })?;
                }
            }
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[&[u8]]) -> Vec<u64> {
        bytes.concat().as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
    }

    fn call(method: Method, attrs: &[(u16, u16, u64)]) -> NamedCall {
        let attrs: Vec<_> = attrs
            .iter()
            .map(|&(attr_id, len, data)| IoctlAttr { attr_id, len, data, ..IoctlAttr::default() })
            .collect();
        let header = IoctlHeader {
            object_id: method.object,
            method_id: method.id,
            num_attrs: attrs.len() as u16,
            ..IoctlHeader::default()
        };
        NamedCall::read(&words(&[header.as_bytes(), attrs.as_bytes()])).expect("a header")
    }

    #[test]
    fn a_call_has_the_name_of_its_method_and_a_queue_that_of_its_type() {
        assert_eq!(call(method::UAR_ALLOC, &[]).to_string(), "MLX5_IB_METHOD_UAR_OBJ_ALLOC");
        let qp = |kind| call(method::QP_CREATE, &[(attr::create_qp::TYPE.0, 8, kind)]).to_string();
        assert_eq!(qp(8), "UVERBS_METHOD_QP_CREATE of type RawPacket");
        assert_eq!(qp(0xff), "UVERBS_METHOD_QP_CREATE of type Driver");
        assert_eq!(qp(0x102), "UVERBS_METHOD_QP_CREATE of type 0x102");
        let srq = call(method::SRQ_CREATE, &[(attr::create_srq::TYPE.0, 8, 1)]);
        assert_eq!(srq.to_string(), "UVERBS_METHOD_SRQ_CREATE of type Xrc");
    }

    #[test]
    fn a_command_has_its_own_name() {
        let write = |command: u32| {
            let id = attr::invoke_write::WRITE_CMD.0;
            call(method::INVOKE_WRITE, &[(id, 8, command.into())]).to_string()
        };
        assert_eq!(write(9), "IB_USER_VERBS_CMD_REG_MR");
        assert_eq!(write(0x8000_001a), "IB_USER_VERBS_EX_CMD_MODIFY_QP");
        assert_eq!(write(0x77), "write command 0x77");
        assert_eq!(call(method::INVOKE_WRITE, &[]).to_string(), "UVERBS_METHOD_INVOKE_WRITE");
    }

    #[test]
    fn unnamed_value_is_printed_as_a_number() {
        let method = |object, id| call(Method { object, id }, &[]).to_string();
        assert_eq!(method(object::WQ, 7), "method 0x7 of UVERBS_OBJECT_WQ");
        assert_eq!(method(0x1234, 0x1000), "method 0x1000 of object 0x1234");
    }

    #[test]
    fn the_drivers_attributes_of_a_method_are_no_request_and_response() {
        let name = |id: u16, method| AttrId(id).name(method);
        assert_eq!(name(0x1000, method::QP_CREATE), Some("UVERBS_ATTR_UHW_IN"));
        assert_eq!(name(0x1002, method::CQ_CREATE), Some("MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX"));
        let own = name(0x1000, method::DM_ALLOC);
        assert_eq!(own, Some("MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET"));
        assert_eq!(name(0x1000, method::UAR_ALLOC), Some("MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE"));
        assert_eq!(name(0x1000, method::STEERING_ANCHOR_CREATE), None);
    }

    #[test]
    fn the_alternate_form_lists_the_attributes() {
        let mut refused =
            call(method::PD_DESTROY, &[(0, 0, 3), (0x1001, 8, 0), (7, 4, 0), (8, 4, 0)]);
        refused.attrs[3].flags = AttrFlags::MANDATORY.bits();
        assert_eq!(
            format!("{refused:#}"),
            "UVERBS_METHOD_PD_DESTROY (attributes: UVERBS_ATTR_DESTROY_PD_HANDLE, \
             UVERBS_ATTR_UHW_OUT, 0x7, 0x8 mandatory)"
        );
        assert_eq!(format!("{:#}", call(method::PD_DESTROY, &[])), "UVERBS_METHOD_PD_DESTROY");
    }

    #[test]
    fn a_call_that_says_more_than_it_has_is_read_as_far_as_it_goes() {
        assert!(NamedCall::read(&[0; 2]).is_none());
        let header = IoctlHeader { num_attrs: 3, ..IoctlHeader::default() };
        let attr = IoctlAttr { attr_id: 1, len: 9, ..IoctlAttr::default() };
        let call = words(&[header.as_bytes(), attr.as_bytes(), &[0; 8]]);
        let call = NamedCall::read(&call).expect("a header");
        assert_eq!(call.attrs.len(), 1);
        assert_eq!(call.number(AttrId(1)), None, "an address");
    }
}
