"""Tuning constants of the search for the optimum, in one place: `SEARCH`, an instance of `SearchOptions`.

Functions read ``options.SEARCH.<field>`` when they run, so that tests can replace the instance. Distances between
parameter vectors are measured on the unconstrained search scale, on which most entries are logarithms. Gains,
gaps and tolerances of the objective are in nats; "window" is the time span of the record.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False, repr=False)
class SearchOptions:
    """Tuning constants of starting points, L-BFGS-B, Newton's method, multistart, subsampling and disturbances."""

    # --- Parameter vector ---
    # scale of the asinh transform of an unbounded parameter, as a fraction of its expected magnitude
    sinh_scale_fraction: float = 1e-2
    # offset (log) between the first guesses of different parameters: avoids accidental cancellation
    start_stagger: float = 0.1
    # half-width (log) of the uniform distribution of random start values around the expected magnitude
    start_log_range: float = 2.3
    # assumed time constant of the data, as a fraction of the window
    time_constant_fraction: float = 0.125

    # --- Starting points: candidates ---
    # guesses kept from the weak form, and from the periodogram
    max_guesses: int = 3
    # guesses kept from gradient matching
    max_gradient_matching_guesses: int = 2
    # guesses are clipped to this log distance from the expected magnitude
    max_guess_log_distance: float = 5.0
    # starts of each least-squares problem (weak form, gradient matching, pole assignment)
    n_least_squares_starts: int = 3
    # relative difference in cost of two least-squares solutions that agree
    cost_tolerance: float = 1e-3
    # series with fewer rows are not used for guesses
    min_series_rows: int = 5
    # initial lengthscales, fractions of the window
    start_lengthscales: tuple[float, ...] = (0.08, 0.2, 0.5)
    # lengthscales at which guesses are compared, fractions of the window
    screening_lengthscales: tuple[float, ...] = (0.08, 0.3)
    # the correlation time of the data is added if it is shorter than the shortest of these by this factor
    short_lengthscale_ratio: float = 0.7
    # initial noise levels, fractions of the std of the data
    start_noise_fractions: tuple[float, ...] = (0.03, 0.3)
    # smallest noise level estimated from differences, fraction of the std of the data
    min_start_noise_fraction: float = 1e-3
    # ratio of variances above which the largest is matched, too
    variance_ratio: float = 1e3
    # largest autocorrelation of white noise, times sqrt(n)
    white_correlation: float = 3.0
    # rows of which autocorrelations are computed; neighbours of longer records are averaged
    max_correlated_rows: int = 50_000
    # correlation time in averaged rows that is long enough
    min_averaged_lag: int = 8
    # random starts without estimates from the data
    n_blind_starts: int = 6
    # starts closer than this are duplicates
    start_distance: float = 0.7

    # --- Starting points: weak form and delay scan ---
    # half-widths of the test functions, fractions of the window
    window_half_widths: tuple[float, ...] = (0.25, 0.12, 0.06, 0.03, 0.015, 0.007)
    # test functions per width
    n_windows: int = 80
    # rows that a test function must cover
    min_window_rows: int = 8
    # rows used per series
    max_weak_form_rows: int = 1500
    # least-squares evaluations from a random start
    weak_form_max_steps: int = 40
    # least-squares evaluations from the solution at another width
    weak_form_warm_steps: int = 12
    # log distance from the expected magnitude that is not penalised
    penalty_log_distance: float = 7.0
    # mean squared residual, in units of its variance, of a bad fit
    poor_weak_form_cost: float = 5.0
    # quadrature points of known right-hand sides
    n_forcing_times: int = 120
    # longest delay, fraction of the window
    max_delay_fraction: float = 0.3
    # ratio of neighbouring delays
    delay_grid_ratio: float = 1.5
    # combinations of delays
    max_delay_combinations: int = 40
    # half-widths of the test functions in the delay scan, fractions of the window
    delay_window_half_widths: tuple[float, ...] = (0.12, 0.03)

    # --- Starting points: gradient matching ---
    # rows of a series that are smoothed
    max_smoothed_rows: int = 120
    # times at which the equations are compared
    n_matching_times: int = 60
    # part of the window left out at either end
    matching_margin: float = 0.05
    # least-squares evaluations
    matching_max_steps: int = 60
    # clip of the search vector
    matching_max_log_distance: float = 30.0
    # mean squared mismatch that needs no second start
    matching_good_cost: float = 0.005
    # relative difference below which two guesses are equal
    duplicate_guess_tolerance: float = 0.02
    # range of the lengthscales of the smoother, fractions of the window, and their number
    smoother_lengthscale_range: tuple[float, float, int] = (0.05, 1.0, 6)
    # noise variances of the smoother, fractions of the variance of the curve
    smoother_noise_ratios: tuple[float, ...] = (1e-5, 1e-3, 3e-2, 0.3)

    # --- Starting points: periodogram ---
    # rows of the series, from its beginning
    max_periodogram_rows: int = 1000
    # decay exponents over the window
    decay_rates: tuple[float, ...] = (0.0, 1.0, 3.0, 8.0)
    # oscillations
    max_oscillations: int = 3
    # frequency step, periods per window
    frequency_step: float = 0.125

    # --- Starting points: output-error method (variable projection, Levenberg-Marquardt) ---
    # relative singular value below which modes are dropped
    singular_value_tolerance: float = 1e-7
    # smallest noise level, fraction of the std of the data
    min_noise_fraction: float = 1e-6
    # initial noise level, fraction of the std of the data
    initial_noise_fraction: float = 0.3
    # initial damping, relative to the diagonal of the Gauss-Newton matrix
    lm_damping: float = 1e-2
    # factor of the damping after a rejected step
    lm_damping_increase: float = 6.0
    # factor of the damping after an accepted step
    lm_damping_decrease: float = 0.2
    # dampings tried per step
    lm_max_damping_tries: int = 6
    # longest step of a logarithmic coordinate
    lm_max_log_step: float = 1.5
    # longest step of an unbounded parameter, in expected magnitudes
    lm_max_unbounded_step: float = 15.0
    # largest fraction of the way to zero that a step moves an unbounded parameter if a step beyond zero fails
    lm_max_zero_approach: float = 0.9
    # largest log distance from the expected magnitude
    lm_max_log_distance: float = 8.0
    # fraction of a step at which the second derivative is measured
    geodesic_probe_fraction: float = 0.1
    # the geodesic acceleration is dropped if it exceeds this fraction of the step
    geodesic_max_ratio: float = 0.75
    # rows of the screening simulations
    screening_rows: int = 250
    # rows of the final simulations
    simulation_rows: int = 2000
    # screened parameter vectors: this many times (1 + number of parameters)
    n_screened_per_parameter: int = 12
    # limit of their number
    max_screened: int = 84
    # offset between the grid indices of several delays
    delay_grid_offset: int = 7
    # screened vectors that are refined on few rows
    n_screened_followed: int = 6
    # of these, vectors refined on all rows
    n_simulation_finalists: int = 2
    # Levenberg-Marquardt steps on few rows
    screening_max_steps: int = 12
    # Levenberg-Marquardt steps on all rows
    simulation_max_steps: int = 40
    # gain of a step that ends the iteration on few rows
    screening_tolerance: float = 0.3
    # gain of a step that ends the iteration on all rows
    simulation_tolerance: float = 1e-2
    # difference in deviance of two solutions that agree
    simulation_agreement: float = 0.2
    # input std of the first segment of a long record, relative to that of the whole record
    min_input_std_ratio: float = 0.5

    # --- Global search of the output-error method ---
    # measurements up to which other optima are searched for
    max_global_rows: int = 1000
    # random starts, at most; fewer if starts times measurements times parameters exceed the second number
    n_global_starts: int = 200
    max_global_values: int = 400_000
    # share of the starts that are drawn around the estimate, and their std on the search scale
    global_near_share: float = 0.7
    global_near_std: float = 1.5
    # step of finite differences
    global_difference_step: float = 1e-6

    # --- L-BFGS-B ---
    # iterations of a full search
    max_iterations: int = 500
    # iterations of an exploring search
    exploring_max_iterations: int = 80
    # measurements above which first steps of parameters and noise are shorter
    full_step_rows: int = 10_000
    # gain of a step that ends a full search, in units of the tolerance of the engine
    fine_tolerance: float = 1e-5
    # the same for an exploring search
    coarse_tolerance: float = 1e-2
    # gain that is not distinguished from rounding errors, relative to the objective
    lbfgs_relative_tolerance: float = 1e-13
    # gradient of a converged search, relative to the objective
    flat_gradient_ratio: float = 1e-3
    # gain that justifies another run from the end of the last one
    restart_gain: float = 1e-2
    # distance to a known optimum at which a search has reached it
    same_point_distance: float = 0.3
    # largest log distance of a parameter from its expected magnitude, and of the std of a disturbance from its start
    max_parameter_distance: float = 16.0
    # largest decrease of the log std of a disturbance
    max_disturbance_decrease: float = 20.0
    # largest change of the log std of a mode
    max_mode_std_change: float = 30.0
    # largest noise level, in std of the data
    max_noise_fraction: float = 1e2
    # distance to a bound at which an entry is at it
    at_bound_tolerance: float = 1e-6
    # fraction of the longest lengthscale above which a lengthscale is at its bound
    longest_lengthscale_share: float = 0.99
    # relative eigenvalue floor of the preconditioner
    preconditioner_floor: float = 1e-7
    # assumed curvature of the objective in the log std of a mode
    mode_std_curvature: float = 1.0
    # iterations of the preconditioned search
    preconditioned_max_iterations: int = 100

    # --- Hessian (observed Fisher information) ---
    # finite-difference step, and its lower limit
    hessian_step: float = 1e-4
    min_hessian_step: float = 1e-9
    # the step is reduced while step**2 * curvature exceeds this
    max_hessian_step_drop: float = 0.1
    # relative eigenvalue below which a direction is flat
    flat_eigenvalue: float = 1e-9
    # part of an entry in flat directions above which its variance is infinite
    flat_direction_share: float = 1e-6
    # kink: a difference as wide as the standard error enlarges it by this factor ...
    kink_error_ratio: float = 1.2
    # ... or a difference this much narrower shows ...
    kink_probe_fraction: float = 0.03
    # ... this many times the curvature
    kink_curvature_ratio: float = 4.0
    # relative change of the standard error that ends the iteration at a kink
    kink_tolerance: float = 0.03
    # limit of that iteration
    max_kink_iterations: int = 20
    # standard errors above this are not tested for a kink
    max_kink_std: float = 0.15

    # --- Newton refinement ---
    # distance from a bound, in expected magnitudes, of a parameter that is at the bound
    bound_gap: float = 1e-9
    # parameters closer to a bound than this, in expected magnitudes, are moved to it
    bound_snap_distance: float = 1e-6
    # relative eigenvalue below which an optimum lies on a ridge, along which it is moved to the expected magnitudes
    ridge_eigenvalue: float = 1e-4
    # weight of squared log distances from these
    ridge_pull: float = 1e-3
    # distance from zero, on the search scale, at which an unbounded parameter is tested for a barrier at zero
    zero_barrier_distance: float = 0.1
    # loss of the objective with the opposite sign that is a barrier
    zero_barrier_loss: float = 1.0
    # largest decrease of the objective for a move to a bound or to another equivalent optimum
    max_snap_loss: float = 1e-3
    # steps per coordinate system
    newton_max_steps: int = 12
    # steps while each gains at least `newton_fast_gain`
    newton_max_fast_steps: int = 20
    newton_fast_gain: float = 1e-2
    # steps if only hyperparameters are estimated
    newton_max_steps_no_parameters: int = 6
    # longest step
    newton_max_step_length: float = 1.0
    # a step that gains less than this fraction of its prediction is idle
    idle_gain_ratio: float = 1e-4
    # idle steps before the iteration ends
    max_idle_steps: int = 3
    # changes of the coordinate system
    newton_rounds: int = 3
    # gain that justifies another round, relative to the objective
    newton_round_tolerance: float = 1e-13
    # ratio of successive predicted gains of slow convergence
    slow_convergence_ratio: float = 0.1
    # rows below which evaluations are cheap: slow convergence is followed, and other optima are refined
    max_cheap_rows: int = 2000
    # predicted gain at which the iteration ends: absolute, and relative to the objective
    newton_tolerance: float = 1e-15
    newton_relative_tolerance: float = 1e-18
    # predicted gain below which the search has converged
    converged_gain: float = 1e-3
    # predicted gain, relative to the objective, above which the objective is undefined uphill
    undefined_gain_ratio: float = 0.1
    # largest gradient noise (rounding errors, in standard errors) that is allowed for
    max_gradient_noise: float = 1e3
    # relative decrease of the objective accepted if the gradient decreases
    allowed_relative_loss: float = 1e-9
    # the same, as a multiple of the rounding error of the objective
    value_noise_factor: float = 10.0
    # limit of that decrease
    max_allowed_loss: float = 1e-3
    # gradient noise above which small gains end the iteration
    blind_gradient_noise: float = 0.1
    # eigenvalue floor of a repaired information matrix with a unit diagonal
    min_consistent_eigenvalue: float = 1e-2
    # relative gain that is larger than rounding errors
    clear_relative_gain: float = 1e-10
    # step, in standard errors, after which the Hessian is measured again
    remeasure_step: float = 0.03
    # expensive objectives: share of its prediction that a step must gain for the Hessian to be updated, not measured
    min_update_gain_ratio: float = 0.1
    # ratio of eigenvalues below which the Hessian is measured along eigenvectors
    ill_conditioned_ratio: float = 1e-2
    # repetitions of that if gradients are noisy
    max_axes_updates: int = 3
    # difference step in standard errors, and its limit on the search scale
    difference_step: float = 0.03
    max_difference_step: float = 3e-4
    # gradient noise above which differences are widened
    quiet_gradient_noise: float = 1e-5
    # their width as a multiple of the gradient noise, and its limit on the search scale
    noise_step_factor: float = 100.0
    max_noisy_difference_step: float = 0.3
    # step, in standard errors, at which the gradient noise is measured
    noise_probe_step: float = 1e-7

    # --- Multistart ---
    # difference of the objective between searches that found the same optimum
    search_agreement: float = 0.1
    # optima with a smaller gap to the best are kept
    kept_optimum_gap: float = 3.0
    # a Newton step that ends this close to an optimum, in nats, leads to it
    same_optimum_tolerance: float = 0.02
    # ratio of neighbouring lengthscales of the scan, and its exponents
    lengthscale_factor: float = 1.08
    lengthscale_exponents: tuple[float, float] = (-9.0, 9.0)
    # lengthscales scanned
    max_scanned_lengthscales: int = 4
    # longer lengthscales are not scanned, fraction of the window
    long_lengthscale: float = 0.2
    # the noise level changes with this power of the lengthscale
    noise_exponent: float = 0.55
    # a local maximum of the scan is searched if its gap is smaller
    scan_gap: float = 8.0
    # sign symmetries tried
    max_symmetries: int = 6
    # relative difference of the objective between symmetric optima
    symmetry_tolerance: float = 1e-6
    # an equivalent parameter vector replaces the estimate if it is better by this
    equivalent_switch_gain: float = 1e-2
    # known noise below this fraction of the std of the data is approached by continuation ...
    small_noise_fraction: float = 1e-4
    # ... through these noise levels
    continuation_noise: tuple[float, ...] = (1e-2, 1e-5, 1e-8)

    # --- Subsampling of long records ---
    # records with inputs and more rows are searched on subsamples first
    long_record_rows: int = 40_000
    # rows of these subsamples
    subsample_rows: int = 6_000
    # rows of the subsamples of rows on disk
    disk_subsample_rows: int = 4_000
    # gain of a step that ends the search on the full record; smallest relevant difference between optima
    full_record_tolerance: float = 1e-4
    # accepted loss of the optimum of the subsample on the full record, nats per measurement
    subsample_loss_per_row: float = 0.05
    # rows above which a fast free function is searched on a segment first
    min_dense_rows: int = 500
    # correlation time of a fast free function, fraction of the window
    fast_lengthscale: float = 0.002
    # rows of that segment
    min_piece_rows: int = 150
    # its length in correlation times
    piece_correlation_times: int = 40

    # --- Disturbances ---
    # initial response, fraction of the std of the data
    disturbance_share: float = 0.1
    # initial lengthscale, fraction of the window
    disturbance_lengthscale: float = 0.1
    # responses tried, fractions of the std of the data
    disturbance_shares: tuple[float, ...] = (0.5, 0.1, 0.02, 0.003)
    # lengthscales tried, fractions of the window
    disturbance_lengthscales: tuple[float, ...] = (0.3, 0.05, 0.01)
    # response that represents a std of zero
    zero_disturbance_share: float = 1e-9
    # a std that gains less is set to zero
    min_variance_gain: float = 1e-4
    # starts that are searched
    n_disturbance_starts: int = 2
    # random starts that are searched with known inputs, unless two optima agree before
    n_random_disturbance_starts: int = 4
    # their time constants, on a log scale from the sampling interval (0) to the correlation time of the data (1)
    random_time_constants: tuple[float, float] = (0.1, 0.6)
    # log distance of the first of them from the expected magnitudes; twice that for the second, and so on
    random_start_distance: float = 0.5
    # their disturbances, fraction of the std of the data
    random_disturbance_share: float = 0.02
    # combinations of responses and lengthscales at all parameter vectors after the first
    n_disturbance_combinations: int = 3
    # gain of a step that ends the search
    disturbance_tolerance: float = 3e-4
    # delay that represents zero, fraction of the shortest delay of the grid
    zero_delay_share: float = 0.01
    # iterations
    disturbance_max_iterations: int = 150
    # difference of the objective of searches that agree
    disturbance_agreement: float = 2.0
    # log decrease at which an inactive std of a mode is recognised
    mode_std_probe: float = 5.0
    # gain of a step that ends the search without one disturbance, with rows on disk
    dropped_disturbance_disk_tolerance: float = 0.1
    # gain on a subsample that is not confirmed on the full record
    certain_gain: float = 25.0


SEARCH = SearchOptions()
