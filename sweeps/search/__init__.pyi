"""Names of ``sweeps.search`` for type checkers; ``__init__.py`` loads each when it is used."""

from sweeps.config.space import CategoricalDistribution as CategoricalDistribution
from sweeps.config.space import FloatDistribution as FloatDistribution
from sweeps.config.space import IntDistribution as IntDistribution
from sweeps.config.space import OrdinalDistribution as OrdinalDistribution
from sweeps.config.warm_start import MLflowExperiment as MLflowExperiment
from sweeps.config.warm_start import OptunaStudy as OptunaStudy
from sweeps.config.warm_start import TrialTable as TrialTable
from sweeps.driver.optuna_searcher import OptunaSearcher as OptunaSearcher
from sweeps.search.advisors.advisor import Advisor as Advisor
from sweeps.search.advisors.failures import FailureAdvisor as FailureAdvisor
from sweeps.search.advisors.memory import MemoryEstimate as MemoryEstimate
from sweeps.search.advisors.priors import PriorAdvisor as PriorAdvisor
from sweeps.search.confirmation_race import Race as Race
from sweeps.search.confirmation_race import race as race
from sweeps.search.expected_improvement import ExpectedImprovement as ExpectedImprovement
from sweeps.search.point_source import PointOptions as PointOptions
from sweeps.search.samplers.bohb import PredictedSampler as PredictedSampler
from sweeps.search.samplers.bohb import RungSampler as RungSampler
from sweeps.search.samplers.build_sampler import build_sampler as build_sampler
from sweeps.search.samplers.curves import CurveSampler as CurveSampler
from sweeps.search.samplers.earlier_sweep import EarlierSweep as EarlierSweep
from sweeps.search.samplers.transfer import EarlierTrials as EarlierTrials
from sweeps.search.samplers.transfer import WarmStartSampler as WarmStartSampler
from sweeps.search.samplers.transfer import points_to_retry as points_to_retry
from sweeps.space.space import Space as Space
from sweeps.warm_start.earlier_trials import load_earlier as load_earlier
