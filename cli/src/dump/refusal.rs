//! Commands that the firmware refused: the status, and the known causes by syndrome.
//!
//! The vendor publishes no list of these syndromes. Each row is what users or the vendor's
//! engineers found out in public about one refusal.

use super::facts::Facts;
use super::item::Item;
use mlx5_prm::cmd::{CommandOpcode, CommandStatus};

/// A syndrome, the command that it was seen with, its cause, what to try, and the source.
struct Known {
    syndrome: u32,
    command: &'static str,
    cause: &'static str,
    remedy: &'static str,
    source: &'static str,
}

macro_rules! known {
    ($($syndrome:literal $command:literal: $cause:literal, $remedy:literal, $source:literal;)*) => {
        static KNOWN: &[Known] = &[$(Known {
            syndrome: $syndrome,
            command: $command,
            cause: $cause,
            remedy: $remedy,
            source: $source,
        },)*];
    };
}

known! {
    0x005fa1c "CREATE_GENERAL_OBJECT": "a virtqueue's address lies outside the guest's memory key",
        "give the queue addresses that the key covers", "lore.kernel.org/virtualization/cacf446e-4ad0-5a59-b118-1fc3632bd86a@oracle.com";
    0x0008fef "CREATE_EQ": "the driver asks for events that this firmware does not know",
        "update the firmware, or use an older kernel", "lore.kernel.org/linux-rdma/CALzJLG-TgHP8tgv_1eqYmWjpO4nRD3=7QRdyGXGp1x_qQdKErg@mail.gmail.com";
    0x003bf6f "CREATE_MKEY": "a memory key without pages was asked for",
        "iSER: set max_sectors above 0", "lore.kernel.org/linux-rdma/20210111145754.56727-4-mgurtovoy@nvidia.com";
    0x0063c66 "SET_ROCE_ADDRESS": "the source MAC address is a multicast address",
        "give the network interface a unicast MAC address", "lore.kernel.org/linux-rdma/CAHex0cpt_0zU7A1h3scMuZp97faYV5uKi_U06D_GYCe7zHaqxw@mail.gmail.com";
    0x012822d "SET_ROCE_ADDRESS": "a RoCE v2 entry is deleted as v1 on a subfunction, which has no v1",
        "update the kernel", "lore.kernel.org/linux-rdma/d3f54129c90ca329caf438dbe31875d8ad08d91a.1618753425.git.leonro@nvidia.com";
    0x0144b7a "SET_FLOW_TABLE_ENTRY": "the flow entry has neither forward nor drop",
        "give the rule an action", "lore.kernel.org/stable/20191210210735.9077-150-sashal@kernel.org";
    0x0177405 "RST2INIT_QP": "RoCE is disabled on this function",
        "`devlink dev param set pci/ADDRESS name enable_roce value true cmode driverinit`, then `devlink dev reload`", "lore.kernel.org/linux-rdma/20200506071602.7177-3-leon@kernel.org";
    0x01870ad "DESTROY_CQ": "the physical function was reset under its virtual function",
        "reset the virtual function, too", "lore.kernel.org/linux-pci/dc01508f-34b1-a69d-dbbf-88440a144198@huawei.com";
    0x01e5585 "ACCESS_REG": "the register of a port was asked for that this function lacks",
        "update the kernel", "lore.kernel.org/linux-rdma/6c5086c295c76211169e58dbd610fb0402360bab.1661763459.git.leonro@nvidia.com";
    0x025b161 "DESTROY_QP": "the physical function was reset under its virtual function",
        "reset the virtual function, too", "lore.kernel.org/linux-pci/dc01508f-34b1-a69d-dbbf-88440a144198@huawei.com";
    0x031b635 "DEALLOC_PD": "the protection domain still has a memory key",
        "destroy all keys of the domain first", "lore.kernel.org/linux-rdma/20210311173723.GA2714107@nvidia.com";
    0x0325a82 "QUERY_CONG_PARAMS": "the device lacks general congestion parameters",
        "update the kernel", "lore.kernel.org/linux-rdma/e7ade70bad52b7468bdb1de4d41d5fad70c8b71c.1706433934.git.leon@kernel.org";
    0x03a3846 "QUERY_HCA_CAP": "the capabilities of a vport were asked for that does not exist",
        "update the kernel", "lore.kernel.org/netdev/20260330194015.53585-4-tariqt@nvidia.com";
    0x04bb88f "RTR2RTS_QP": "a retry count above 7: the field has three bits",
        "set retry_cnt and rnr_retry to at most 7", "github.com/charmplusplus/charm/issues/2532";
    0x0537801 "SET_HCA_CAP": "more MAC addresses (devlink max_macs) than the device has",
        "lower max_macs", "lore.kernel.org/netdev/e7ad343c-0d78-4d0c-9533-52a61afc8214@intel.com";
    0x0562b00 "CREATE_TIR": "a capability vanished: the host's function was enabled before the embedded CPU had set up the switch",
        "enable the function after the switch", "lore.kernel.org/netdev/20201120230339.651609-16-saeedm@nvidia.com";
    0x0595b5d "CREATE_TIS": "a TIS with settings for link aggregation on a virtual function",
        "update the kernel: 6.8-rc1 has this fault", "lore.kernel.org/netdev/Za7IMcstTALcSnPG@x130";
    0x065b500 "CREATE_QP": "no queue pair is left, though max_qp is not reached yet",
        "destroy queue pairs that are not used", "lore.kernel.org/linux-rdma/CY5PR11MB65342B7EDE1F12E1012ACC09DDB99@CY5PR11MB6534.namprd11.prod.outlook.com";
    0x06ae84c "SET_FLOW_TABLE_ENTRY": "a destination is a flow table whose level is not below this one",
        "order the tables by level, or ignore levels", "lore.kernel.org/netdev/1758525094-816583-3-git-send-email-tariqt@nvidia.com";
    0x07d49cb "CREATE_LAG": "a bond was made while virtual functions were enabled outside switchdev mode",
        "set switchdev mode first", "lore.kernel.org/netdev/Y4WdzWNVcLMvsYyF@fedora";
    0x07ea02d "2RST_QP": "the physical function was reset under its virtual function",
        "reset the virtual function, too", "lore.kernel.org/linux-pci/dc01508f-34b1-a69d-dbbf-88440a144198@huawei.com";
    0x0a22b82 "CREATE_DCT": "a virtual function in link aggregation has no DC targets",
        "use another transport there", "lore.kernel.org/linux-rdma/8909d509-a419-36ea-1529-2164d8550195@nvidia.com";
    0x0d61c0b "CREATE_SQ": "the time stamp format does not fit the device's clock mode",
        "use the real-time format, or set the device to the free-running clock", "lore.kernel.org/netdev/20221024115357.37278-7-saeed@kernel.org";
    0x0ef0c8a "DEALLOC_PD": "the protection domain still has transmit keys",
        "destroy all keys of the domain first", "lore.kernel.org/netdev/20260504181100.269334-4-tariqt@nvidia.com";
    0x0f2ff71 "SET_FLOW_TABLE_ENTRY": "the entry names a packet reformat object that was freed",
        "update the kernel", "lore.kernel.org/netdev/20230420010959.276760-2-saeed@kernel.org";
}

/// Types of CREATE_GENERAL_OBJECT, which its op_mod names (`MLX5_GENERAL_OBJECT_TYPES_*`).
const OBJECTS: [(u64, &str); 5] = [
    (0x0c, "ENCRYPTION_KEY"),
    (0x0d, "VIRTIO_NET_Q"),
    (0x13, "IPSEC"),
    (0x20, "SAMPLER"),
    (0x24, "FLOW_METER_ASO"),
];

const UNPUBLISHED: &str = "not published: the syndrome is the firmware's own number for the exact \
    check that failed";
const REPORT: &str = "update the firmware. Then report it to the vendor's support with this line, \
    the firmware's version (`devlink dev info`), the card (`lspci -d 15b3:`) and the kernel \
    (`uname -r`)";

const UNANSWERED: &str = "look for PCIe errors and for health lines before this one; `devlink dev \
    reload`, or a power cycle, brings the device back";

/// The name of a command.
fn name(opcode: u64) -> Option<&'static str> {
    // The kernel's names.
    Some(match CommandOpcode(opcode.try_into().ok()?).name()? {
        "TO_RST_QP" => "2RST_QP",
        "TO_ERR_QP" => "2ERR_QP",
        name => name,
    })
}

/// Adds the facts in the bytes of a command's input or output.
pub(super) fn read(bytes: &[u8], facts: &mut Facts) {
    let number = |at: usize, count: usize| {
        let bytes = bytes.get(at..at + count).unwrap_or_default();
        bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if facts.text("direction") != Some("OUTPUT") {
        facts.set("uid", number(2, 2));
        facts.set("op_mod", number(6, 2));
        return;
    }
    facts.set("status", number(0, 1));
    facts.set("fw_syndrome", number(4, 4));
    if number(0, 1) == 0 && facts.text("command").is_some_and(|name| name.starts_with("CREATE_")) {
        facts.set("created", number(8, 4) & 0xff_ffff);
    }
}

/// Explains a refused command.
pub(super) fn explain(facts: &Facts) -> Item {
    let object = facts.text("object").map(|object| format!("CREATE_{object}"));
    let command = facts.text("command").map(str::to_owned).or(object);
    let command = command.or_else(|| name(facts.number("command_opcode")?).map(str::to_owned));
    let syndrome = facts.number("fw_syndrome");
    let known = KNOWN.iter().find(|row| Some(u64::from(row.syndrome)) == syndrome);
    let what = command.as_deref().or(known.map(|row| row.command)).unwrap_or("a command");
    let status = facts.byte("status").map(|status| CommandStatus(status.into()));
    let mut item = Item::new(match (status, syndrome) {
        (None, None) => format!("command {what}"),
        (Some(CommandStatus::OK), _) => format!("the firmware accepted {what}"),
        _ => format!("the firmware refused {what}"),
    });
    item.segment("what it says");
    if let Some(command) = &command {
        let of_name =
            || CommandOpcode::ALL.iter().find(|one| name(one.0.into()) == Some(command.as_str()));
        let opcode = facts.number("command_opcode").or_else(|| Some(of_name()?.0.into()));
        let opcode = opcode.map_or_else(String::new, |opcode| format!("opcode {opcode:#x}"));
        item.say("command", command, opcode);
    }
    if let Some(op_mod) = facts.number("op_mod") {
        let is_object = what == "CREATE_GENERAL_OBJECT";
        let object = OBJECTS.iter().find(|(number, _)| is_object && *number == op_mod);
        let meaning = object.map_or_else(String::new, |(_, name)| format!("type {name}"));
        item.say("op_mod", format!("{op_mod:#x}"), meaning);
    }
    if let Some(uid) = facts.number("uid") {
        item.say("uid", uid, "the user context of the command");
    }
    if let Some(status) = status {
        item.say("status", format!("{:#x}", status.0), status.text());
    }
    if let Some(syndrome) = syndrome {
        item.say("syndrome", format!("{syndrome:#x}"), "the firmware's number for the reason");
    }
    if let Some(number) = facts.number("errno") {
        let errno = i32::try_from(number).unwrap_or_default();
        let text = std::io::Error::from_raw_os_error(errno).to_string();
        item.say("err", format!("-{number}"), text.split(" (").next().unwrap_or_default());
    }
    if let Some(number) = facts.number("created") {
        let name = if what == "CREATE_QP" { "qpn" } else { "number" };
        item.say(name, format!("{number:#08x}"), "what was created");
    }
    if syndrome.is_none() || status.is_some_and(CommandStatus::is_ok) {
        return item;
    }
    item.segment("why");
    match known {
        Some(row) => {
            item.text("cause", row.cause);
            if command.as_deref().is_some_and(|command| command != row.command) {
                item.note(format!("it is known of {}, not of this command", row.command));
            }
            item.text("try", row.remedy);
            item.text("source", row.source);
        }
        None => {
            item.text("cause", UNPUBLISHED);
            item.text("try", REPORT);
        }
    }
    item
}

/// A syndrome that stands alone, as a number.
pub(super) fn number(text: &str) -> Option<Item> {
    let digits = text.trim().strip_prefix("0x")?;
    let syndrome = u32::from_str_radix(digits, 16).ok()?;
    let mut facts = Facts::default();
    facts.set("fw_syndrome", syndrome);
    Some(explain(&facts))
}

/// A command that the firmware did not answer.
pub(super) fn unanswered(facts: &Facts) -> Item {
    let command = facts.text("command").unwrap_or("a command");
    let mut item = Item::new(format!("the firmware did not answer {command}"));
    item.segment("what it says");
    let opcode = facts.number("command_opcode").unwrap_or_default();
    item.say("command", command, format!("opcode {opcode:#x}"));
    item.segment("why");
    item.text("cause", "the device left the PCIe bus, or its firmware hangs");
    item.text("try", UNANSWERED);
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_syndrome_has_one_row_and_each_command_its_name() {
        let all: BTreeSet<u32> = KNOWN.iter().map(|row| row.syndrome).collect();
        assert_eq!(all.len(), KNOWN.len());
        let all = CommandOpcode::ALL.iter();
        let names: Vec<&str> = all.filter_map(|one| name(one.0.into())).collect();
        for row in KNOWN {
            assert!(names.contains(&row.command), "{}", row.command);
        }
        assert_eq!(name(0x50a), Some("2RST_QP"));
        assert_eq!(name(0xffff), None);
    }

    #[test]
    fn a_syndrome_without_a_row_says_how_to_report_it() {
        let mut facts = Facts::default();
        facts.set("fw_syndrome", 0x123_u32);
        let item = explain(&facts);
        assert!(item.value("cause").is_some_and(|(_, text, _)| text.starts_with("not published")));
        assert!(item.value("try").is_some_and(|(_, text, _)| text.contains("firmware's version")));
        assert_eq!(item.value("source"), None);
    }
}
