//! Names and values of a device and its ports, as text or as JSON.

use crate::table::field;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::io::{self, Write};

/// Takes the values in order: those of the device, then those of each port.
pub(super) trait Sheet {
    /// A value by its name, as a program takes it and as people read it. Values of ports are
    /// indented further than those of the device.
    fn reported(
        &mut self,
        indent: usize,
        name: &str,
        value: Value,
        text: impl Display,
    ) -> io::Result<()>;

    /// A value with the same form for programs and people.
    fn field(
        &mut self,
        indent: usize,
        name: &str,
        value: impl Into<Value> + Display + Clone,
    ) -> io::Result<()> {
        self.reported(indent, name, value.clone().into(), value)
    }

    /// A number in hexadecimal, with at least `digits` digits.
    fn bits(&mut self, indent: usize, name: &str, bits: u64, digits: usize) -> io::Result<()> {
        // Two more for `0x`.
        let width = digits + 2;
        self.reported(indent, name, bits.into(), format_args!("{bits:#0width$x}"))
    }

    /// A property that is there or not.
    fn flag(&mut self, indent: usize, name: &str, is: bool) -> io::Result<()> {
        self.reported(indent, name, is.into(), if is { "yes" } else { "no" })
    }

    /// An entry of a table: `NAME[INDEX]`, and an object of an array for programs.
    fn entry(&mut self, table: Table, index: u32, value: Value, text: &str) -> io::Result<()>;

    /// One of several values of the name before.
    fn item(&mut self, value: &str) -> io::Result<()>;

    /// Begins the part about a port.
    fn port(&mut self, number: u8) -> io::Result<()>;
}

/// A table of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Table {
    Gids,
    PKeys,
}

impl Table {
    /// The name of an entry in text, and of the array in JSON.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Gids => ("GID", "gids"),
            Self::PKeys => ("P_Key", "pkeys"),
        }
    }
}

/// Lines with the values in a column.
pub(super) struct Text<'a, W>(pub(super) &'a mut W);

impl<W: Write> Sheet for Text<'_, W> {
    fn reported(
        &mut self,
        indent: usize,
        name: &str,
        _: Value,
        text: impl Display,
    ) -> io::Result<()> {
        field(self.0, indent, name, text)
    }

    fn entry(&mut self, table: Table, index: u32, _: Value, text: &str) -> io::Result<()> {
        field(self.0, 8, &format!("{}[{index}]", table.names().0), text)
    }

    fn item(&mut self, value: &str) -> io::Result<()> {
        writeln!(self.0, "{:34}{value}", "")
    }

    fn port(&mut self, number: u8) -> io::Result<()> {
        writeln!(self.0, "    port {number}")
    }
}

/// An object, which has its ports as an array.
#[derive(Default)]
pub(super) struct Json {
    device: Map<String, Value>,
    ports: Vec<Map<String, Value>>,
    last: String,
}

impl Json {
    /// The port that was begun last, or the device.
    fn now(&mut self) -> &mut Map<String, Value> {
        self.ports.last_mut().unwrap_or(&mut self.device)
    }

    fn push(&mut self, name: &str, value: Value) {
        let items = self.now().entry(name).or_insert_with(|| Value::Array(Vec::new()));
        items.as_array_mut().into_iter().for_each(|items| items.push(value.clone()));
    }

    pub(super) fn into_value(mut self) -> Value {
        let ports: Vec<Value> = self.ports.into_iter().map(Value::from).collect();
        self.device.insert("ports".to_owned(), ports.into());
        self.device.into()
    }
}

impl Sheet for Json {
    fn reported(&mut self, _: usize, name: &str, value: Value, _: impl Display) -> io::Result<()> {
        name.clone_into(&mut self.last);
        self.now().insert(name.to_owned(), value);
        Ok(())
    }

    fn entry(&mut self, table: Table, index: u32, value: Value, _: &str) -> io::Result<()> {
        let mut entry = Map::from_iter([("index".to_owned(), index.into())]);
        entry.extend(value.as_object().cloned().unwrap_or_default());
        self.push(table.names().1, entry.into());
        Ok(())
    }

    fn item(&mut self, value: &str) -> io::Result<()> {
        self.push(&format!("{}_names", self.last), value.into());
        Ok(())
    }

    fn port(&mut self, number: u8) -> io::Result<()> {
        self.ports.push(Map::from_iter([("port".to_owned(), Value::from(number))]));
        Ok(())
    }
}
