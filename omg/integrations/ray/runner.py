"""`runner=ray`: copies of an environment in Ray actors, on this machine or on a cluster."""

from __future__ import annotations

from importlib.util import find_spec

from omg.config.schema import Config
from omg.envs.contract import BatchedEnv
from omg.envs.registry import BatchFactory
from omg.envs.workers import WorkerVectorEnv
from omg.integrations.ray.bench import Bench
from omg.integrations.ray.cluster import MISSING, check_address
from omg.integrations.ray.workers import RayPlace
from omg.runners.assembly import IMPORT_SECONDS, Runner, worker_count
from omg.types import OmgError


class RayRunner(Runner):
    """As `parallel`, with workers that may be on other machines."""

    in_process = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if find_spec("ray") is None:
            raise OmgError(MISSING)
        check_address(config.ray_address)
        self._bench = Bench(
            address=config.ray_address,
            cpus=config.ray_cpus_per_worker,
            patience=config.worker_timeout,
        )

    def copies(self, n_copies: int) -> BatchedEnv:
        config, bench = self.config, self._bench
        place = RayPlace(bench)
        try:
            room = bench.room()
            bench.reserve(worker_count(config, max(n_copies, self.n_training), cores=room))
            env = WorkerVectorEnv(
                factory=BatchFactory(config.env, dict(config.env_args)),
                n_copies=n_copies,
                n_workers=worker_count(config, n_copies, cores=room),
                timeout=config.worker_timeout,
                start_timeout=config.worker_timeout + IMPORT_SECONDS,
                on_failure=config.on_worker_failure,
                max_restarts=config.max_worker_restarts,
                place=place,
            )
        except BaseException:
            place.release()
            raise
        return env
