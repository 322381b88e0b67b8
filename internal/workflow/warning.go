package workflow

// What is understood and not yet done says so (D9).
const warnContainer = "container is not supported yet: the job will fail before its first step instead of running without it"
