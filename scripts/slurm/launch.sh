# Sourced by the .sbatch files: the environment of a job, and the words that start its agents.
#
# DEOT_ENV       the Python environment to use, as seen from the folder of submission (default: .venv)
# DEOT_LAUNCHER  mpirun (default) or srun; srun takes a Slurm with PMIx (srun --mpi=list says whether it has it)

deot_env=${DEOT_ENV:-.venv}
if [ ! -f "$deot_env/bin/activate" ]; then
    echo "no Python environment at '$deot_env' (from $PWD): make setup, or sbatch --export=ALL,DEOT_ENV=/path/to/it" >&2
    exit 2
fi
source "$deot_env/bin/activate"
export OMP_NUM_THREADS=1                 # agents share a node's cores among themselves (--threads)
export PMIX_MCA_psec=native              # Slurm's PMIx and the library's may each prefer another way to know a user
export PMIX_MCA_gds=hash                 # of different versions, they agree on this store

# The words that start deot_mpi.run with one rank for each task of the job; its options follow.
case ${DEOT_LAUNCHER:-mpirun} in
    mpirun) launch=(mpirun --map-by slot -n "$SLURM_NTASKS" python -m deot_mpi.run) ;;
    srun)   launch=(srun --mpi=pmix --ntasks="$SLURM_NTASKS" python -m deot_mpi.run) ;;
    *)      echo "DEOT_LAUNCHER is '$DEOT_LAUNCHER'; it is mpirun or srun" >&2; exit 2 ;;
esac
