"""From observations to actions: inputs, network, opponent model; of learning and frozen players."""
