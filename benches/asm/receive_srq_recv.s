    push rbx
    mov rax,rdx
    mov rbx,rdi
    mov rdx,QWORD PTR [rdx]
    mov edi,DWORD PTR [rax+0x8]
    mov r8d,DWORD PTR [rax+0xc]
    mov r9,QWORD PTR [rsi]
    mov r9d,DWORD PTR [r9]
    shr r9b,1
    test edi,edi
    setg r10b
    and r10b,r9b
    cmp r10b,0x1
    jne 0
    mov r10d,DWORD PTR [rsi+0x34]
    lea r9d,[r10+0x1]
    cmp r9d,DWORD PTR [rsi+0x38]
    jne 1
0:
    mov rdi,rbx
    mov rdx,rcx
    mov rcx,rax
    call QWORD PTR [_ZN8mlx5_wqe7receive6shared18SharedReceiveQueue9recv_slow]
    mov rax,rbx
    pop rbx
    ret
1:
    mov eax,DWORD PTR [rsi+0x30]
    imul rax,r10
    add rax,QWORD PTR [rsi+0x8]
    bswap edi
    bswap r8d
    bswap rdx
    mov DWORD PTR [rax+0x10],edi
    mov DWORD PTR [rax+0x14],r8d
    mov QWORD PTR [rax+0x18],rdx
    mov rax,QWORD PTR [rsi+0x10]
    mov QWORD PTR [rax+r10*8],rcx
    mov rax,QWORD PTR [rsi+0x18]
    mov BYTE PTR [rax+r10*1],0x1
    mov DWORD PTR [rsi+0x34],r9d
    mov rax,QWORD PTR [rsi+0x20]
    add r9d,DWORD PTR [rsi+0x3c]
    movzx ecx,r9w
    bswap ecx
    mov DWORD PTR [rax],ecx
    mov BYTE PTR [rbx],0x1f
    mov rax,rbx
    pop rbx
    ret
