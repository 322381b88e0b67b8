package app

const asAgent = "KICI_TEST_AS_AGENT"

func agentMain() int { return 1 }
