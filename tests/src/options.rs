//! Options of the suite, in addition to those of every test program: the device, and the output.

use crate::bed::Place;
use mlx5::Device;
use mlx5_sim::Model;
use mlx5_sim::model::UnknownModel;
use std::path::PathBuf;

/// The environment variable that names the real device.
const DEVICE: &str = "MLX5_TEST_DEVICE";

/// Options of the suite.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The device, followed by a colon and the port if it is not the first.
    pub(crate) device: Option<String>,
    /// The device and port of the other end of each pair.
    pub(crate) second: Option<String>,
    /// The host that serves, to run the cases for two hosts.
    pub(crate) peer: Option<String>,
    /// Serves another host, on this address; on the default one if it is empty.
    pub(crate) serve: Option<String>,
    /// Number of rounds in which to hold objects on a device that is removed and inserted again.
    pub(crate) replug: Option<usize>,
    /// The models on which to run every case.
    pub(crate) models: Vec<Model>,
    /// The path of the ledger, without `.json` or `.md`.
    pub(crate) ledger: Option<PathBuf>,
}

impl Options {
    /// Removes the suite's options from the arguments. If they name no device, the environment may.
    pub(crate) fn take(arguments: &mut Vec<String>) -> Result<Self, String> {
        let environment = || std::env::var(DEVICE).ok().filter(|name| !name.is_empty());
        let device = value(arguments, "--device", "a device: mlx5_0, say")?.or_else(environment);
        let second = value(arguments, "--second", "a device or port: mlx5_1 or mlx5_0:2, say")?;
        let peer = value(arguments, "--peer", "the host that serves")?;
        let serve = serve(arguments);
        let replug = value(arguments, "--replug", "how many rounds")?
            .map(|rounds| rounds.parse().map_err(|_| format!("{rounds:?} is no number of rounds")))
            .transpose()?;
        let ledger = value(arguments, "--ledger", "a file, without .json")?.map(PathBuf::from);
        let models = match value(arguments, "--sim-model", "a model, or all")?.as_deref() {
            None => Vec::new(),
            Some("all") => Model::ALL.to_vec(),
            Some(names) => {
                let models: Result<_, UnknownModel> = names.split(',').map(str::parse).collect();
                models.map_err(|error| format!("{error}, and all"))?
            }
        };
        if !models.is_empty() && device.is_some() {
            return Err("--sim-model is for the simulated device, --device for a real one".into());
        }
        let real = [
            ("--second", second.is_some()),
            ("--peer", peer.is_some()),
            ("--serve", serve.is_some()),
            ("--replug", replug.is_some()),
            ("--ledger", ledger.is_some()),
        ];
        match real.iter().find(|(_, given)| *given && device.is_none()) {
            Some((name, _)) => Err(format!("{name} is for a real device: it needs --device")),
            None => Ok(Self { device, second, peer, serve, replug, models, ledger }),
        }
    }
}

/// Removes `--serve` or `--serve=ADDRESS` from the arguments.
fn serve(arguments: &mut Vec<String>) -> Option<String> {
    let is = |argument: &String| argument == "--serve" || argument.starts_with("--serve=");
    let at = arguments.iter().position(is)?;
    let argument = arguments.remove(at);
    Some(argument.split_once('=').map(|(_, address)| address.to_owned()).unwrap_or_default())
}

/// Removes `NAME VALUE` or `NAME=VALUE` from the arguments.
fn value(arguments: &mut Vec<String>, name: &str, what: &str) -> Result<Option<String>, String> {
    let is = |argument: &String| {
        argument.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let Some(at) = arguments.iter().position(is) else { return Ok(None) };
    let argument = arguments.remove(at);
    match argument.split_once('=') {
        Some((_, value)) => Ok(Some(value.to_owned())),
        None if at < arguments.len() => Ok(Some(arguments.remove(at))),
        None => Err(format!("{name} needs the name of {what}")),
    }
}

/// Finds a device of this machine, with an optional port after a colon.
pub(crate) fn find(name: &str) -> Result<Place, String> {
    let (name, port) = match name.split_once(':') {
        None => (name, 1),
        Some((name, port)) => {
            let parsed = port.parse().map_err(|_| format!("{port:?} is no number of a port"));
            (name, parsed?)
        }
    };
    let devices = mlx5::devices().map_err(|error| error.to_string())?;
    let found = devices.iter().find(|device| device.name() == name).cloned();
    found.map(|device| Place { device, port }).ok_or_else(|| {
        let names: Vec<_> = devices.iter().map(Device::name).collect();
        format!("there is no device named {name}; there are {names:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &str) -> (Result<Options, String>, Vec<String>) {
        let mut arguments = line.split(' ').map(str::to_owned).collect();
        (Options::take(&mut arguments), arguments)
    }

    #[test]
    fn options_of_the_suite_are_removed_and_the_rest_stays() {
        let (options, rest) = taken("suite --device=mlx5_1 rings --second mlx5_1:2 --list");
        let options = options.expect("options");
        assert_eq!(options.device.as_deref(), Some("mlx5_1"));
        assert_eq!(options.second.as_deref(), Some("mlx5_1:2"));
        assert_eq!(rest, ["suite", "rings", "--list"]);
    }

    #[test]
    fn host_serves_at_the_given_address_or_any() {
        let options = |line| taken(line).0.expect("options");
        assert_eq!(options("suite --device a --serve").serve.as_deref(), Some(""));
        assert_eq!(options("suite --device a --serve=b:1").serve.as_deref(), Some("b:1"));
        assert_eq!(options("suite --device a --peer b").peer.as_deref(), Some("b"));
    }

    #[test]
    fn a_model_is_called_by_its_name_or_all_are() {
        let models = |line| taken(line).0.map(|options| options.models);
        assert_eq!(models("suite --sim-model cx5"), Ok(vec![Model::ConnectX5]));
        let two = vec![Model::ConnectX5, Model::ConnectX6Dx];
        assert_eq!(models("suite --sim-model cx5,cx6dx"), Ok(two));
        assert_eq!(models("suite --sim-model=all"), Ok(Model::ALL.to_vec()));
        let error = models("suite --sim-model connectx5").expect_err("another name");
        assert!(error.ends_with("cx5, cx6, cx6dx, cx7, and all"), "{error}");
        assert!(models("suite --device mlx5_0 --sim-model cx5").is_err());
    }

    #[test]
    fn an_option_without_its_value_is_refused() {
        assert!(taken("suite --device").0.is_err());
        assert!(taken("suite --peer host").0.is_err());
        assert!(taken("suite --replug 3").0.is_err());
        assert!(taken("suite --device mlx5_0 --replug often").0.is_err());
        assert!(taken("suite --device mlx5_0 --ledger").0.is_err());
    }
}
