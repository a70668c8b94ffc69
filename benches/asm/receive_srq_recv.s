    push rbx
    mov rax,rdx
    mov rbx,rdi
    mov rdx,QWORD PTR [rdx]
    mov r8d,DWORD PTR [rax+0x8]
    mov edi,DWORD PTR [rax+0xc]
    mov r9,QWORD PTR [rsi]
    mov r9d,DWORD PTR [r9]
    test r9b,0x2
    je 0
    lea r9d,[r8-0x1]
    cmp r9d,DWORD PTR [rsi+0x34]
    jae 0
    mov r10d,DWORD PTR [rsi+0x38]
    lea r9d,[r10+0x1]
    cmp r9d,DWORD PTR [rsi+0x3c]
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
    bswap r8d
    bswap edi
    bswap rdx
    mov DWORD PTR [rax+0x10],r8d
    mov DWORD PTR [rax+0x14],edi
    mov QWORD PTR [rax+0x18],rdx
    mov rax,QWORD PTR [rsi+0x10]
    mov QWORD PTR [rax+r10*8],rcx
    mov rax,QWORD PTR [rsi+0x18]
    mov BYTE PTR [rax+r10*1],0x1
    mov DWORD PTR [rsi+0x38],r9d
    mov rax,QWORD PTR [rsi+0x20]
    add r9d,DWORD PTR [rsi+0x40]
    movzx ecx,r9w
    bswap ecx
    mov DWORD PTR [rax],ecx
    mov BYTE PTR [rbx],0x1f
    mov rax,rbx
    pop rbx
    ret
